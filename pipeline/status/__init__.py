"""`kwire pipeline status`: checkpoints as `processed.py` reads them, and what retention will delete, by `forecast.py`."""
