-- Identity of the person behind a key, for separation of duties. Nothing is known of it but that equal ids are one
-- person; null: none was named, also where the release before wrote the row. Requests and servers keep it as it was.

alter table api_keys add column identity_id uuid;
alter table servers add column adder_identity uuid;
alter table consent_requests add column identity_id uuid;
