-- Whether a call has a ledger (web_provenance), in its final record: a ledger that is gone as a whole shows. Null in records of the
-- release before, and in those without an end, which say nothing about it.

alter table activity_open add column has_ledger boolean;
alter table activity add column has_ledger boolean;
