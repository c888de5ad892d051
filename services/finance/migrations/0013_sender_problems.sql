-- What health and metrics ask for: of as many senders as there are addresses that were ever swept, few have a problem.
create index chain_sender_problems on chain_sender (address)
  where stopped_because is not null or missing_utia is not null;
