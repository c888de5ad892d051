-- Whether no automatic payout is started, because the chain refused the latest ones to the destination: kept with the wallet
-- as payouts end, so that health of many wallets is one look at an index.
alter table wallet add column auto_payout_stopped boolean not null default false;
update wallet set auto_payout_stopped = true where payout_destination is not null and (
  select count(*) filter (where status = 'failed' and destination = payout_destination) >= 3
  from (select status, destination from payout
        where payout.app_id = wallet.app_id and status in ('confirmed', 'failed')
        order by created_at desc, id desc limit 3) latest);
create index wallet_auto_payout_stopped on wallet (app_id) where auto_payout_stopped;
