# A kwire broker. Any image with Python 3.11 or newer, its venv module and pip can be the base:
#   docker build --build-arg BASE=python:3.12-slim-bookworm -t kwire .
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
# Only for this stage, and only if it is given.
ARG PIP_INDEX_URL
WORKDIR /source
# A compiler and Python's headers, for the native module; without them kwire runs without it.
RUN (apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && { test -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" \
        || apt-get install -y --no-install-recommends python3-dev; }) \
    || echo 'kwire will run without its native module'
COPY pyproject.toml setup.py README.md LICENSE ./
COPY bin bin
COPY kwire kwire
COPY pipeline pipeline
COPY server server
COPY testing testing
# The environment gets no pip of its own: nothing is installed into it later, so it gets the packages of every option of
# `kwire serve`. Logins with Kerberos need gssapi in the list, and libkrb5 in the base.
ARG EXTRAS=console,oauth,telemetry,uvloop
RUN python3 -m venv --without-pip /opt/kwire \
    && python3 -m pip --python /opt/kwire/bin/python3 install --no-cache-dir ".[$EXTRAS]"
COPY compat/docker/healthy.py /opt/kwire/bin/kwire-healthy
# What Testcontainers and others call in the images of Apache Kafka and Confluent: compat/docker/README.md.
COPY compat/docker/image /image
RUN mv /image/image.py /opt/kwire/bin/kwire-image \
    && for tool in kafka-storage kafka-configs zookeeper-server-start; do \
        ln -s kwire-image /opt/kwire/bin/$tool && ln -s kwire-image /opt/kwire/bin/$tool.sh; \
    done

FROM ${BASE}
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/kwire --shell /usr/sbin/nologin kwire
COPY --from=build /opt/kwire /opt/kwire
# Start scripts change these files, so they belong to the user.
COPY --from=build --chown=10001 /image /etc/kafka/docker
COPY --from=build --chown=10001 /image /etc/confluent/docker
RUN mkdir -p /etc/kafka/secrets /var/lib/zookeeper \
    && chown 10001 /etc/kafka /etc/kafka/secrets /etc/kafka/docker /etc/confluent/docker /var/lib/zookeeper
ENV PATH=/opt/kwire/bin:$PATH
# Start scripts write here. Each `kwire serve` without --data-dir finds the same data as the image's own command.
RUN mkdir /kwire && ln -s /var/lib/kwire /kwire/kwire-data && chown 10001 /kwire
USER kwire
WORKDIR /kwire
# A named volume takes its owner from here.
VOLUME /var/lib/kwire
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=5s --retries=6 --start-period=30s CMD ["kwire-healthy", "localhost:9092"]
# Without variables KAFKA_*: kwire serve --listen :9092 --data-dir /var/lib/kwire
CMD ["/etc/kafka/docker/run"]
