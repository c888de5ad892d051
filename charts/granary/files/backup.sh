set -eu
backups=${BACKUPS:-/backups}
secrets=${SECRETS:-/etc/granary}
# Readers of events before those who write them: what a reader has applied is then in the outbox of its publisher too.
services='finance tasks blobs payments data'
name=backup-$(date -u +%Y-%m-%dT%H-%M-%SZ)
part=$backups/.incomplete-$name
# What a killed one has left. A running one is younger: its Job has a deadline.
find "$backups" -maxdepth 1 -name '.incomplete-*' -mmin "+$((${DEADLINE:-3600} / 60))" -exec rm -rf {} +
trap 'rm -rf "$part"' EXIT
mkdir -m 700 "$part"
for service in $services; do
  PGPASSWORD=$(cat "$secrets/postgres-$service/password") \
    pg_dump --username="${PREFIX}_${service}_owner" --dbname="${PREFIX}_$service" --format=custom --file="$part/$service.dump"
  contents=$(pg_restore --list "$part/$service.dump")
  case $contents in
    *'TABLE DATA'*) ;;
    *)
      # Such as while a backup is restored. It would become the newest one.
      echo "${PREFIX}_$service has no tables: there is nothing to back up" >&2
      exit 1
      ;;
  esac
  echo "$service: $(wc -c <"$part/$service.dump") bytes"
done
[ -z "${TOPIC_PREFIX:-}" ] || echo "$TOPIC_PREFIX" >"$part/topic-prefix"
sync
mv "$part" "$backups/$name"
echo "$name is complete"
find "$backups" -maxdepth 1 -name 'backup-*' | sort -r | tail -n "+$((KEEP + 1))" | while read -r old; do rm -rf "$old"; done
