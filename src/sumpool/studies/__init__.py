"""Studies: one command and one folder of results each; `sumpool.studies.catalog` lists them.

A study is a folder: ``experiment.py`` runs it, ``section.py`` reports what it stored, and its
``STUDY`` is a line of the catalog. Studies share code through ``shared`` alone.
"""
