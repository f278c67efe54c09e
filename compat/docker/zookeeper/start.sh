#!/bin/bash
# Writes zoo.cfg from the variables that the official image has, and becomes the server.
set -eu
{
    echo "dataDir=/data"
    echo "dataLogDir=/datalog"
    echo "tickTime=${ZOO_TICK_TIME:-2000}"
    echo "initLimit=${ZOO_INIT_LIMIT:-5}"
    echo "syncLimit=${ZOO_SYNC_LIMIT:-2}"
    echo "autopurge.purgeInterval=${ZOO_AUTOPURGE_PURGEINTERVAL:-0}"
    echo "maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}"
    echo "standaloneEnabled=${ZOO_STANDALONE_ENABLED:-true}"
    echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
    echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
    for server in $ZOO_SERVERS; do
        echo "$server"
    done
} > /conf/zoo.cfg
echo "${ZOO_MY_ID:-1}" > /data/myid
# JVMFLAGS is a list of words.
exec java ${JVMFLAGS:-} -cp '/conf:/etc/zookeeper/conf:/usr/share/java/*' \
    org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
