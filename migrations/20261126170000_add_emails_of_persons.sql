-- A person who logs in may be known by an owner and by an e-mail address: each of them makes two principals one person. Null also
-- where the release before wrote the row.

alter table servers add column adder_email text;
alter table consent_requests add column person_email text;
