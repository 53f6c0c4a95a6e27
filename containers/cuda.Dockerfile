# Carbon with its packages and what speeds up GPUs. From the root of the checkout:
#   docker build -f containers/cuda.Dockerfile -t carbon:cuda .
#   docker run --rm --gpus all --ipc=host -v "$PWD:/data" -w /data carbon:cuda carbon doctor
# `devel` has nvcc, with which flash-attn is compiled where it has no wheel. Its build needs the
# torch that is installed, so nothing is built in isolation, and our build's needs are installed first.
FROM pytorch/pytorch:2.11.0-cuda12.8-cudnn9-devel
COPY . /carbon
RUN pip install --no-cache-dir packaging ninja "hatchling>=1.27" "editables>=0.3" \
    && pip install --no-cache-dir --no-build-isolation -e "/carbon[packages,gpu]" \
    && useradd --create-home carbon
USER carbon
ENV PYTHONPATH=/carbon
EXPOSE 7860 8000
CMD ["carbon", "doctor"]
