# NOT RUN: there was no Docker where this was written. tests/structure/test_ways_in.py compares it with the files, commands
# and versions that it names.
#
# The course in a container: JupyterLab on port 8888, the real model inside, your exercises in a volume.
#
#     docker build -t kvcourse .
#     docker run --rm -p 127.0.0.1:8888:8888 -v kvcourse-work:/course/work kvcourse
#
# Open the address that it prints, with 127.0.0.1 in place of the container's name. A new container goes on with the same volume.
# The plain package index serves a CUDA build of PyTorch, several gigabytes large. For the CPU build give the address of
# PyTorch's index of CPU builds (the README says where it is named):
#
#     docker build --build-arg PIP_EXTRA_INDEX_URL=<that address> -t kvcourse .
FROM python:3.12-slim

ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1 \
    KVCOURSE_HOME=/usr/local/share/kvcourse

WORKDIR /course

# What changes rarely comes first: a changed lesson installs nothing again.
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY kvcourse ./kvcourse
COPY exercises ./exercises
RUN pip install -c constraints.txt -e ".[lab]" && kvcourse fetch smollm2

COPY notebooks ./notebooks
COPY docs ./docs
COPY CHANGELOG.md CONTRIBUTING.md INSTRUCTOR.md ./

# Lessons belong to root, so nobody changes them by accident; answers belong to the learner.
RUN useradd --create-home --uid 1000 learner && mkdir work && chown learner: work
USER learner
VOLUME /course/work
EXPOSE 8888

CMD ["sh", "-c", "kvcourse start && exec kvcourse lab --no-browser --ip=0.0.0.0 --port=8888"]
