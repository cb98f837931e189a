# unitk in a container. This file has not been built yet: tell us if a step fails.
#
#   docker build -t unitk .                                                          for a CPU
#   docker build -t unitk --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .   for CUDA
#   docker run --rm -v "$PWD:/work" unitk quickstart                       (with --gpus all for CUDA)
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /opt/unitk
COPY setup.py pyproject.toml constraints.txt README.md LICENSE ./
COPY unitk unitk
COPY unitk_cli unitk_cli
COPY recipes/quickstart recipes/quickstart
RUN pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" -c constraints.txt .
WORKDIR /work
ENTRYPOINT ["unitk"]
