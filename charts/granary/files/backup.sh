set -eu
backups=${BACKUPS:-/backups}
secrets=${SECRETS:-/etc/granary}
# Readers of events before those who write them: what a reader has applied is then in the outbox of its publisher too.
services='finance tasks blobs payments data'
name=backup-$(date -u +%Y-%m-%dT%H-%M-%SZ)
part=$backups/.incomplete-$name
rm -rf "$backups"/.incomplete-*
mkdir -m 700 "$part"
for service in $services; do
  PGPASSWORD=$(cat "$secrets/postgres-$service/password") \
    pg_dump --username="${PREFIX}_${service}_owner" --dbname="${PREFIX}_$service" --format=custom --file="$part/$service.dump"
  pg_restore --list "$part/$service.dump" >/dev/null
  echo "$service: $(wc -c <"$part/$service.dump") bytes"
done
sync
mv "$part" "$backups/$name"
echo "$name is complete"
find "$backups" -maxdepth 1 -name 'backup-*' | sort -r | tail -n "+$((KEEP + 1))" | while read -r old; do rm -rf "$old"; done
