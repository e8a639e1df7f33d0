-- The risk of the call that a grant was given for: it covers no riskier ones. Null in grants of the release before, which
-- then cover calls of low risk alone.

alter table consent_grants add column risk text;
