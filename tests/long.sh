#!/bin/bash
# `make test-long [PART=name]`: the tests that take hours, in parts; by default all, one by one.
set -u
cd "$(dirname "$0")/.." || exit 1
STORMS=tests/real/test_storm.py NEWER=tests/real/test_newer_slurm.py
FOREIGN=tests/test_foreign_folders.py AGREED=tests/test_foreign_agreed.py
names=(slurm clusters storms newer foreign agreed local)

# Sets marks and paths of a part. Between them slurm, clusters and local have every test that no other part names.
choose() {
    case $1 in
        slurm) marks="slurm and not long" paths=() ;;
        clusters) marks="slurm and long" paths=("--ignore=$STORMS") ;;
        storms) marks="slurm and long" paths=("$STORMS") ;;
        newer) marks=long paths=("$NEWER") ;;
        foreign) marks=long paths=("$FOREIGN") ;;
        agreed) marks=long paths=("$AGREED") ;;
        local) marks="long and not slurm" paths=("--ignore=$NEWER" "--ignore=$FOREIGN" "--ignore=$AGREED") ;;
        *) echo "error: PART=$1: valid parts are ${names[*]}" >&2 && exit 2 ;;
    esac
}

# The number of tests that ended so, by the last line of pytest.
count() { grep -oE "[0-9]+ $1" <<<"$last" | cut -d ' ' -f 1 || true; }

choose "${PART:-slurm}"
[ -z "${PART:-}" ] || names=("$PART")
said=$(mktemp) status=0 table=$(printf '%-10s %7s %7s %7s' part passed failed minutes)
trap 'rm -f "$said"' EXIT
for name in "${names[@]}"; do
    choose "$name"
    started=$SECONDS
    bash tests/run.sh -m "$marks" "${paths[@]}" 2>&1 | tee "$said"
    code=${PIPESTATUS[0]} minutes=$(((SECONDS - started + 59) / 60))
    [ "$code" -ne 130 ] || exit 130
    last=$(grep -E '^=+ .* in [0-9.]+s' "$said" | tail -n 1)
    passed=$(count passed) failed=$(count failed) errors=$(count error)
    [ "$code" -eq 0 ] || status=1
    table+=$(printf '\n%-10s %7d %7d %7d' "$name" "${passed:-0}" "$((${failed:-0} + ${errors:-0}))" "$minutes")
    [ -n "$last" ] || table+="  no result"
done
echo "$table"
exit "$status"
