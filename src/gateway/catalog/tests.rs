use uuid::Uuid;

use super::*;
use crate::domain::seal::Key;
use crate::store::SecretRows;
use crate::upstream::BreakerRules;

const LIMITS: Limits = Limits {
    concurrency: 1,
    queue: 1,
    queue_wait: Duration::from_secs(1),
    breaker: BreakerRules {
        failures_max: 5,
        rest_min: Duration::from_secs(1),
        rest_max: Duration::from_secs(30),
    },
    listing_timeout: Duration::from_secs(1),
    connections: 1,
    connect_timeout: Duration::from_secs(1),
    call_timeout: Duration::from_secs(1),
    idle_timeout: Duration::from_secs(1),
    response_bytes_max: 1,
};

fn server(id: u128, header_names: &[&str]) -> Server {
    Server {
        server_id: Uuid::from_u128(id),
        name: format!("s{id}"),
        header_names: header_names.iter().map(|name| (*name).to_owned()).collect(),
        ..Server::example()
    }
}

fn build(rev: i64, servers: Vec<Server>, old: &Catalog) -> Catalog {
    let rows =
        CatalogueRows { rev, servers, tools: Vec::new(), offers: Vec::new(), secrets: SecretRows::default() };
    let keyring = Keyring::new([Key::new([1; 32])]).unwrap();
    Catalog::build(TenantId(Uuid::from_u128(1)), &rows, old, &LIMITS, &keyring, &Commands::off())
}

#[test]
fn connections_go_with_their_server_or_its_credential() {
    let all = vec![server(1, &[]), server(2, &[]), server(3, &["X"]), server(4, &[])];
    let old = build(1, all, &Catalog::empty());
    assert_eq!(old.gone, []);
    // 1 stays, 2 gets a credential, 3 loses its own, 4 is removed, 5 is new
    let now = build(2, vec![server(1, &[]), server(2, &["X"]), server(3, &[]), server(5, &[])], &old);
    assert_eq!(now.gone, [2, 3, 4].map(|id| ServerId(Uuid::from_u128(id))));
}
