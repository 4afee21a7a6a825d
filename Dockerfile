# The package and its notebooks, in the versions that the tests run with:
#     docker build -t paperlib .
#     docker run -p 8888:8888 -v "$PWD/runs:/home/reader/paperlib/runs" paperlib
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home reader
USER reader
WORKDIR /home/reader/paperlib
COPY --chown=reader . .
RUN make setup
EXPOSE 8888
CMD [".venv/bin/jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "notebooks/start.ipynb"]
