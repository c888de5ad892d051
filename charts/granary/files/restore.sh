set -eu
# Restores the newest backup, each database in one transaction; one that has tables is refused.
services='data payments blobs tasks finance'
from=$(ls -d /backups/backup-* | sort | tail -n 1)
echo "restoring $from"
for service in $services; do
  database=${PREFIX}_$service
  PGPASSWORD=$(cat "/etc/granary/postgres-$service/password")
  export PGPASSWORD
  tables=$(psql -X --no-align --tuples-only --username="${database}_owner" --dbname="$database" --command="select count(*) from pg_tables where schemaname not in ('pg_catalog', 'information_schema')")
  if [ "$tables" != 0 ]; then
    echo "$database has $tables tables: restore into empty databases, made by deploy/postgres.sql" >&2
    exit 1
  fi
done
for service in $services; do
  database=${PREFIX}_$service
  PGPASSWORD=$(cat "/etc/granary/postgres-$service/password")
  export PGPASSWORD
  pg_restore --single-transaction --exit-on-error --username="${database}_owner" --dbname="$database" "$from/$service.dump"
  echo "$service is restored"
done
