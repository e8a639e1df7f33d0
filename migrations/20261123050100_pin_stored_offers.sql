-- The offers that are stored at the upgrade are the baseline. A file of its own: it locks no table.
insert into offer_pins (tenant_id, server_id, kind, name, approved_pin, approved_definition, rev)
select tenant_id, server_id, kind, name, pin, definition, rev from offers
on conflict do nothing;
