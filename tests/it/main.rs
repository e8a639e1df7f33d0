//! The gateway as its users meet it: the real program as a child process, a real Postgres, HTTP, and
//! upstream servers that are real or told what to do wrong. `setup.sh` installs what is not Rust.

#[cfg(test)]
mod activity;
#[cfg(test)]
mod attacks;
#[cfg(test)]
mod bad_days;
#[cfg(test)]
mod bulkheads;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod consent;
#[cfg(test)]
mod console;
#[cfg(test)]
mod counts;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod damping;
#[cfg(test)]
mod direct;
#[cfg(test)]
mod embeddings;
#[cfg(test)]
mod entrance;
#[cfg(test)]
mod fanout;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod hostile_schemas;
#[cfg(test)]
mod ingress;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod large;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod listings;
#[cfg(test)]
mod logins;
#[cfg(test)]
mod management;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod needs;
#[cfg(test)]
mod pins;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod pooled;
#[cfg(test)]
mod private;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod rounds;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod schema_suite;
#[cfg(test)]
mod server_logins;
#[cfg(test)]
mod stdio;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod subscriptions;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod upgrade;
#[cfg(test)]
mod web_pages;
#[cfg(test)]
mod write_ahead;
