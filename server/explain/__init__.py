"""Why a consumer does not see a record, what a group waits for, and which records a transaction blocks.

`facts.py` defines the facts; `record_rules.py`, `group_rules.py` and `transaction_rules.py` turn facts into causes; all
are pure. `live_records.py`, `live_groups.py` and `live_transactions.py` get the facts from brokers, `directory.py`
reads them from the files of a stopped broker.
"""
