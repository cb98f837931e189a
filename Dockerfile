# unitk in a container. This file has not been built yet: tell us if a step fails.
#
#   docker build -t unitk .                                                          for a CPU
#   docker build -t unitk --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .   for CUDA
#   docker run --rm -v "$PWD:/work" --user "$(id -u)" unitk quickstart     (with --gpus all for CUDA)
#   docker run --rm -p 127.0.0.1:8000:8000 unitk serve --host 0.0.0.0      the page: http://127.0.0.1:8000
FROM python:3.12.11-slim-bookworm
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /opt/unitk
COPY requirements.txt constraints.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements.txt \
 && pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"
COPY setup.py pyproject.toml README.md LICENSE NOTICE ./
COPY unitk unitk
COPY unitk_cli unitk_cli
COPY recipes/quickstart recipes/quickstart
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
 && useradd --create-home unitk && mkdir /work && chown unitk /work
USER unitk
ENV HOME=/tmp
WORKDIR /work
EXPOSE 8000
# of `unitk serve`; other commands end before it is asked often enough to matter
HEALTHCHECK --start-period=60s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=3)"]
ENTRYPOINT ["unitk"]
