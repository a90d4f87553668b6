"""How alternating proxy problems shape unseen classes."""
