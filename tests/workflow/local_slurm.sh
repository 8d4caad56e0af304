#!/usr/bin/env bash
# A real Slurm of one node on this machine, for tests: no systemd, no cgroups, no accounting. For root.
#   local_slurm.sh up DIR          starts it; everything it writes is in DIR, but for the link /etc/slurm/slurm.conf
#   local_slurm.sh restart DIR     kills slurmd, the node's daemon, and starts it again
#   local_slurm.sh down DIR        ends its jobs and daemons, and removes the link
set -euo pipefail
action=$1 dir=$2 host=$(hostname -s) link=/etc/slurm/slurm.conf
PATH=$PATH:/usr/sbin:/sbin

fail() { echo "local_slurm: $*" >&2; tail -n 5 "$dir"/*.log >&2; exit 1; }

wait_until() { # SECONDS COMMAND...
  local end=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.2; done
}

end() { # PROGRAM SIGNAL: of the process in PROGRAM's pid file, and waits until it is gone
  local pid; pid=$(cat "$dir/$1.pid" 2>/dev/null) && grep -qs "^$1" "/proc/$pid/comm" || return 0
  kill "-$2" "$pid"
  wait_until 20 test ! -e "/proc/$pid" || kill -KILL "$pid"
}

node_is_up() { [ "$(sinfo --noheader --format=%t)" = idle ] || [ "$(sinfo --noheader --format=%t)" = "${1:-idle}" ]; }
no_jobs() { [ -z "$(squeue --noheader)" ]; }

case $action in
up)
  mkdir -p "$dir/state" "$dir/spool" "$(dirname $link)"
  # srun inside a job reads this place only, whatever SLURM_CONF says
  [ ! -e $link ] || [ -L $link ] || fail "$link is another cluster's"
  ln -sfn "$dir/slurm.conf" $link
  getent hosts "$host" >/dev/null || echo "127.0.0.1 $host" >>/etc/hosts
  (umask 077 && head -c 128 /dev/urandom >"$dir/munge.key")
  munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
    --log-file="$dir/munged.log" --seed-file="$dir/munge.seed"
  cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmUser=root
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=26817
AuthInfo=socket=$dir/munge.socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=5
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
NodeName=node NodeHostname=$host NodeAddr=127.0.0.1 Port=26818 CPUs=4 RealMemory=16000
PartitionName=test Nodes=node Default=YES MaxTime=INFINITE State=UP
CONF
  slurmctld
  wait_until 20 scontrol ping || fail "slurmctld does not answer"
  slurmd -N node
  wait_until 30 node_is_up || fail "the node does not come up"
  ;;
restart)
  end slurmd KILL
  slurmd -N node
  wait_until 30 node_is_up mix || fail "the node does not come up again"
  ;;
down)
  # jobs first: without slurmd nobody ends them
  if scontrol ping >/dev/null 2>&1; then scancel --user=root && wait_until 30 no_jobs || true; fi
  for daemon in slurmd slurmctld munged; do end $daemon TERM; done
  [ "$(readlink $link)" != "$dir/slurm.conf" ] || rm $link
  ;;
*) fail "unknown action $action" ;;
esac
