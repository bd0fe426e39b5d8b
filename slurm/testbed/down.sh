#!/bin/sh
# down.sh [FOLDER]: ends the testbed with all its jobs; only its logs stay.
exec "${PYTHON:-python3}" "$(dirname "$0")/testbed.py" down "$@"
