set -eu
backups=${BACKUPS:-/backups}
secrets=${SECRETS:-/etc/granary}
# Restores the newest backup, each database in one transaction; one that has tables is refused.
services='data payments blobs tasks finance'
from=$(find "$backups" -maxdepth 1 -name 'backup-*' | sort | tail -n 1)
if [ -z "$from" ]; then
  echo "there is no backup in $backups" >&2
  exit 1
fi
echo "restoring $from"
# A pod may start before its network leads to Postgres.
attempt=1
until PGPASSWORD=$(cat "$secrets/postgres-data/password") \
  psql -X --quiet --output=/dev/null --username="${PREFIX}_data_owner" --dbname="${PREFIX}_data" --command='select 1'; do
  [ "$attempt" -lt 30 ] || exit 1
  attempt=$((attempt + 1))
  sleep 2
done
for service in $services; do
  database=${PREFIX}_$service
  PGPASSWORD=$(cat "$secrets/postgres-$service/password")
  export PGPASSWORD
  tables=$(psql -X --no-align --tuples-only --username="${database}_owner" --dbname="$database" --command="select count(*) from pg_tables where schemaname not in ('pg_catalog', 'information_schema')")
  if [ "$tables" != 0 ]; then
    echo "$database has $tables tables: restore into empty databases, made by deploy/postgres.sql" >&2
    exit 1
  fi
done
for service in $services; do
  database=${PREFIX}_$service
  PGPASSWORD=$(cat "$secrets/postgres-$service/password")
  export PGPASSWORD
  pg_restore --single-transaction --exit-on-error --username="${database}_owner" --dbname="$database" "$from/$service.dump"
  echo "$service is restored"
done
