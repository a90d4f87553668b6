"""Studies, each with one command and one results folder; `sumpool.studies.catalog` lists them.

A study is a package: ``experiment.py`` runs it, ``section.py`` reports its stored results, and its
``STUDY`` is an entry of the catalog. Studies share code only through ``shared``.
"""
