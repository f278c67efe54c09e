"""The answers of a broker to clients that lack permissions.

`kafka-3.9.2.json` was recorded from a running Apache Kafka 3.9.2 with ZooKeeper and AclAuthorizer, `kafka-4.3.0.json`
from 4.3.0 with KRaft and StandardAuthorizer, with the same ACLs, by `python -m tests.authorization`: for each request
the denials that change its answer, and the changes. For two denials at once, only changes that do not follow from one
of them are recorded. AddOffsetsToTxn, for instance, depends on GROUP:READ and TRANSACTIONAL_ID:WRITE, and without both
the answer is that of TRANSACTIONAL_ID:WRITE.

Neither release answers DescribeUserScramCredentials of all users if it is denied ("answer": "none").
"""
