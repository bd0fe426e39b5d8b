# Functions that every batch script of a run shares: the steps of a job once Python can start. They use the variables of
# the script, slurm/job.sbatch.j2. A copy of this file below your working directory takes precedence.

# Files in the run may have been replaced since; the script is Slurm's copy and contains the submitted file's digest.
code_digest() {
    cd "$code_folder" || return
    find . ! -type f ! -type d -print
    find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum -- | sed 's/  / /' | sha256sum | cut -c-16
}
check_code() {
    [ -z "$digest" ] || [ "$(code_digest)" = "$digest" ] && return
    echo "error: $code_folder: files there were changed, added or removed since the job was submitted; nothing is run:" \
        "remove this folder, then submit again"
    exit 1
}

# Requeues this element, and changes its resources while it is pending. It is never held: if this script dies in between,
# the job comes back unchanged.
requeue() {
    if is_cancelled; then echo cancelled; else scontrol requeue "$known_as"; fi
}
change() {
    local change answer begin
    for change in $changes; do
        # Slurm delays a requeued job until its old credential has expired; our delay begins after that.
        if [[ $change = StartTime=now+* ]]; then
            begin=$(scontrol show job -o "$known_as" | grep -oP 'EligibleTime=\K\d\S+')
            begin=$(($(date -d "${begin:-now}" +%s) - $(date +%s)))
            change=StartTime=now+$((${change#*+} + (begin > 0 ? begin : 0)))
        fi
        answer=$(unsignalled scontrol update JobId="$known_as" "$change" 2>&1) || requeue_decision $code update "$answer"
    done
}

# sbatch may refuse resources because they are too large.
as_before() {
    [ -n "$changes" ] && changes="" && requeue_decision $code update "$words"
}

# Resubmits this element with the flag of sbatch in $1; a call whose answer got lost is not repeated.
# Slurm's variables of this job must not leak into the next one.
again() {
    local others element_flag=(--array="$SLURM_ARRAY_TASK_ID")
    is_cancelled && echo cancelled && return
    others=$(squeue -a -h -r --name="$SLURM_JOB_NAME" -o %F_%K) || return
    # A job without an array is its own element 0.
    [ -z "$plain" ] || { others=${others//N\/A/0} element_flag=(); }
    grep -v "^${element}$" <<<"$others" | grep "_${SLURM_ARRAY_TASK_ID}$" && return
    env $(compgen -e | grep -E "^($scheduler_prefixes)" | grep -v '^SLURM_CONF$' | sed 's/^/--unset=/') \
        sbatch --parsable "${element_flag[@]}" --job-name="$SLURM_JOB_NAME" "$1" $changes "$0"
}

# Decides what to do after the ranks have ended, and calls the user's hook if necessary.
requeue_decision() {
    local verdict
    verdict=$(
        trap '' TERM USR1 USR2
        {
            scontrol show job -o "$known_as" 2>/dev/null
            sinfo -h -N -p "$SLURM_JOB_PARTITION" \
                -o 'NodeMemory=%m PartitionTime=%l NodeName=%N NodeState=%T NodeKind=%f|%G|%c|%m' 2>/dev/null | sort -V
        } | "${python[@]}" -m hpcddm.jobs.requeue_policy "$map" "$@"
    )
    [ "$2" = update ] && return
    IFS='|' read -r decision event unit changes reason < <(printf '%s\n' "$verdict")
    echo "$(date +%FT%T) $job: exit code $1; ${decision:-no verdict}${reason:+: $reason}"
    if [ -n "$hook" ] && [ -n "$event" ]; then
        HPCDDM_EVENT=$event HPCDDM_UNIT=$unit HPCDDM_REASON=$reason HPCDDM_RUN=$run bash -c "$hook"
    fi
}

# Jobs that the dependency does not name, or jobs of another cluster, which no dependency can name, may still write this
# unit's inputs: then it waits for them, or checks again later.
wait_for_others() {
    local cluster names queues= start
    while IFS='|' read -r cluster names; do
        # A job that came back although its unit was cancelled does nothing.
        if [ "$cluster|$names" = '!|cancelled' ]; then requeue_decision 143; exit 1; fi
        if [ "${cluster:-$HPCDDM_CLUSTER}" = "$HPCDDM_CLUSTER" ]; then
            patiently squeue -a -h -r --name="$names" -o '%F_%K|%j' || return
        else
            words=$(timeout 60 squeue -M "$cluster" -a -h -r --name="$names" -o '%F_%K|%j' 2>/dev/null) ||
                words="?|$cluster"
        fi
        queues+=$words$'\n'
    done < <("${python[@]}" -m hpcddm.jobs.input_gate "$map")
    [ -n "$queues" ] && start=$("${python[@]}" -m hpcddm.jobs.input_gate "$map" start <<<"$queues")
    [ -n "$start" ] || return
    if [[ $start = !* ]]; then requeue_decision 1 wait "${start#!}"; exit 1; fi
    echo "$(date +%FT%T) $job: waits ($start)"
    patiently again "$start" && exit 0
    requeue_decision 1 "resubmit ($start)" "$words"
    exit 1
}

# Starts the ranks and waits for their end; sets $code to srun's exit code, or to 143 if the job had to leave before.
run_ranks() {
    local srun
    # submitit expects its pickle under the job's id, which sbatch assigned only after the pickle was written.
    home=$jobs/$HPCDDM_CLUSTER
    mkdir -p "$home"
    ln -sfn "$jobs/$token.pkl" "$home/${element}_submitted.pkl"
    code=143 srun_words=$jobs/$job.${SLURM_RESTART_COUNT:-0}.srun
    rm -f "$srun_words"
    if [ ! -e "$HPCDDM_STOP_FILE" ]; then
        "${ranks[@]}" --output="$jobs/${job}_%t.out" "${python[@]}" -u -m submitit.core._submit "$home" 2>"$srun_words" &
        srun=$!
        # A signal ends 'wait' before srun has ended.
        while :; do
            wait $srun
            kill -0 $srun 2>/dev/null || break
        done
        wait $srun
        code=$?
        cat "$srun_words" >&2
    fi
    trap : TERM USR1 USR2
    rm -f "$HPCDDM_STOP_FILE"
}

# Carries out the decision: ends the script, or requeues the element.
follow_decision() {
    local after_this="--dependency=afterany:$known_as"
    case $decision in
        complete) rm -f "$home/${element}"_*.pkl; exit 0 ;;
        # The next attempt avoids the nodes that ended this one.
        superseded) change; exit 0 ;;
        # Somebody may have resubmitted it since this job began.
        waiting) wait_for_others; exit 1 ;;
        requeue) patiently requeue && { [ "$words" = cancelled ] || change; } ;;
        resubmit) patiently again "$after_this" || { as_before && patiently again "$after_this"; } ;;
        # No decision could be made: it may be this node's fault.
        '') [ "$comes_back_by" = scontrol ] && go_elsewhere; exit 1 ;;
        *) exit 1 ;;
    esac && [ "$words" != cancelled ] && exit 0
    if [ "$words" = cancelled ]; then requeue_decision $code; else requeue_decision $code "$decision" "$words"; fi
    exit 1
}

# All steps of a job once Python can start on its node.
run_unit() {
    check_code
    wait_for_others
    run_ranks
    requeue_decision $code
    rm -f "$srun_words"
    follow_decision
}
