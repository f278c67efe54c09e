"""What a broker answers to clients that lack permissions.

`kafka-3.9.2.json` was recorded from a running Apache Kafka 3.9.2 with ZooKeeper and AclAuthorizer,
`kafka-4.3.0.json` from 4.3.0 with KRaft and StandardAuthorizer, with the same ACLs, by
`python -m tests.authorization`: for each request the denials that change its answer, and what they
change. Of two denials at once, only what does not follow from one of them. AddOffsetsToTxn, for
instance, depends on GROUP:READ and TRANSACTIONAL_ID:WRITE, and without both the answer is that of
TRANSACTIONAL_ID:WRITE.

DescribeUserScramCredentials of all users is never answered by either if it is denied ("answer":
"none").
"""
