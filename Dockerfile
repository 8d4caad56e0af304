# The pinned environment and this checkout; results are written to /data (mount a folder there):
#   docker build --tag rl-influence .
#   docker run --rm --volume "$PWD/out:/data" rl-influence snakemake --cores all --configfile /opt/rl-influence/config/smoke.yaml
FROM python:3.11-slim-bookworm

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential git make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/rl-influence
COPY requirements.lock ./
RUN python -m pip install --no-cache-dir --requirement requirements.lock
COPY . .
RUN python -m pip install --no-cache-dir --no-deps --no-build-isolation --editable .

ENV PYTHONHASHSEED=0 OMP_NUM_THREADS=1
WORKDIR /data
CMD ["rl-influence", "--help"]
