#!/bin/sh
# Makes a base image where none can be pulled: Debian by debootstrap, with this machine's certificates and pip settings.
#   compat/docker/local-base.sh kwire-base:local && export KWIRE_BASE=kwire-base:local
#   docker build --network host --build-arg BASE=kwire-base:local -t kwire-zookeeper:local compat/docker/zookeeper
#   export ZOOKEEPER_IMAGE=kwire-zookeeper:local
set -eu
name=${1:-kwire-base:local}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates bookworm "$root"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
if [ -f /etc/pip.conf ]; then cp /etc/pip.conf "$root/etc/"; fi
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
tar -C "$root" -c . | docker import --change 'ENV LANG=C.UTF-8' - "$name"
