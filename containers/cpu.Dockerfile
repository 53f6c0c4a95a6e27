# Carbon with its packages, for CPUs. From the root of the checkout:
#   docker build -f containers/cpu.Dockerfile -t carbon .
#   docker run --rm -v "$PWD:/data" -w /data carbon carbon models --copy yeast
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev zlib1g-dev \
    && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
COPY . /carbon
RUN pip install --no-cache-dir -e "/carbon[packages]" && useradd --create-home carbon
USER carbon
ENV PYTHONPATH=/carbon
EXPOSE 7860 8000
CMD ["carbon", "doctor"]
