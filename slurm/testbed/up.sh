#!/bin/sh
# up.sh [FOLDER]: starts the testbed, or repairs it, or says that it is up already.
exec "${PYTHON:-python3}" "$(dirname "$0")/testbed.py" up "$@"
