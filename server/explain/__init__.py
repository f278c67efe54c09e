"""Why a consumer does not see a record, what a group waits for, and what a transaction holds back.

`facts.py` says what is known; `record_rules.py`, `group_rules.py` and `transaction_rules.py` turn facts into causes; all are
pure. `live_records.py`, `live_groups.py` and `live_transactions.py` ask brokers for the
facts, `directory.py` reads them from the files of a stopped broker.
"""
