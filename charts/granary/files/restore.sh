set -eu
backups=${BACKUPS:-/backups}
secrets=${SECRETS:-/etc/granary}
# Restores a backup, the newest one unless FROM names another, each database in one transaction. One that has tables is
# refused, unless they are from an earlier attempt of the same Job (JOB_UID), which goes on with the same backup.
services='data payments blobs tasks finance'
job=${JOB_UID:-}
list=$(mktemp)
trap 'rm -f "$list"' EXIT
name=${FROM:-latest}
if [ "$name" = latest ]; then
  name=$(find "$backups" -maxdepth 1 -name 'backup-*' | sort | tail -n 1)
  name=${name##*/}
  if [ -z "$name" ]; then
    echo "there is no backup in $backups" >&2
    exit 1
  fi
fi

use() {
  database=${PREFIX}_$1
  PGPASSWORD=$(cat "$secrets/postgres-$1/password")
  export PGPASSWORD
}
ask() {
  psql -X --quiet --no-align --tuples-only --username="${database}_owner" --dbname="$database" --command="$1"
}
comment() {
  ask "select shobj_description(oid, 'pg_database') from pg_database where datname = current_database()"
}

# A pod may start before its network leads to Postgres.
use data
attempt=1
until ask 'select 1' >/dev/null; do
  [ "$attempt" -lt 30 ] || exit 1
  attempt=$((attempt + 1))
  sleep 2
done
if [ -n "$job" ]; then
  begun=$(comment)
  case $begun in "restored by $job from "*) name=${begun##* } ;; esac
fi
for service in $services; do
  if [ ! -f "$backups/$name/$service.dump" ]; then
    echo "there is no $service.dump in $backups/$name" >&2
    exit 1
  fi
done

# Those topics may have later events, with which the next ones of the restored databases would collide.
if [ -n "${TOPIC_PREFIX:-}" ] && [ -f "$backups/$name/topic-prefix" ] && [ "$(cat "$backups/$name/topic-prefix")" = "$TOPIC_PREFIX" ]; then
  echo "the topics of $TOPIC_PREFIX have events that $name does not know: set kafka.topicPrefix to another" >&2
  exit 1
fi

restored=
for service in $services; do
  use "$service"
  tables=$(ask "select count(*) from pg_tables where schemaname not in ('pg_catalog', 'information_schema')")
  if [ "$tables" != 0 ]; then
    if [ -z "$job" ] || [ "$(comment)" != "restored by $job from $name" ]; then
      echo "$database has $tables tables: restore into empty databases, made by deploy/postgres.sql" >&2
      exit 1
    fi
    restored="$restored $service"
  fi
done
echo "restoring $backups/$name"
for service in $services; do
  case " $restored " in *" $service "*) echo "$service was restored before" && continue ;; esac
  use "$service"
  # Before the tables: with them it says whose they are.
  [ -z "$job" ] || ask "comment on database \"$database\" is 'restored by $job from $name'"
  # Without the offsets of a consumer in topics, which are others now.
  pg_restore --list "$backups/$name/$service.dump" | sed '/ TABLE DATA [^ ]* bus_offset /d' >"$list"
  pg_restore --single-transaction --exit-on-error --use-list="$list" --username="${database}_owner" --dbname="$database" \
    "$backups/$name/$service.dump"
  echo "$service is restored"
done
