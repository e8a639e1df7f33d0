use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::domain::pin::Pin;
use crate::domain::seal::Key;
use crate::domain::server::ConnectionState;
use crate::store::{SecretRows, Server, StoredTool};
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

pub(in crate::gateway) fn server(id: u128, header_names: &[&str]) -> Server {
    Server {
        server_id: Uuid::from_u128(id),
        name: format!("s{id}"),
        connection: ConnectionState::Connected.into(),
        header_names: header_names.iter().map(|name| (*name).to_owned()).collect(),
        ..Server::example()
    }
}

fn build(rev: i64, servers: Vec<Server>, old: &Catalog) -> Catalog {
    build_with_tools(rev, servers, [], old)
}

/// Builds a catalogue with approved tools of the first server, by name and definition.
pub(in crate::gateway) fn build_with_tools(
    rev: i64,
    servers: Vec<Server>,
    tools: impl IntoIterator<Item = (String, String)>,
    old: &Catalog,
) -> Catalog {
    let first = servers.first().map(|server| server.id());
    let tool = |(name, definition): (String, String)| StoredTool {
        server: first.expect("a server"),
        pin: Pin::of(&definition).expect("a pin").as_str().to_owned(),
        safe_name: Some(format!("safe__{name}")),
        blocked_by: None,
        drift: None,
        overridden: None,
        changed_at: None,
        name,
        definition,
        state: PinState::Approved,
        approved_pin: None,
        approved_definition: None,
    };
    let tools = tools.into_iter().map(tool).collect();
    let rows = CatalogueRows { rev, servers, tools, offers: Vec::new(), secrets: SecretRows::default() };
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

#[test]
fn a_shape_is_shared_while_the_text_is_the_same_and_no_part_is_made_before_a_list() {
    let text = |schema: &str| format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
    let (one, other) = (text(r#"{"type":"object","title":"a"}"#), text(r#"{"title":"a","type":"object"}"#));
    let build = |text: &str, old: &Catalog| {
        build_with_tools(old.rev + 1, vec![server(1, &[])], [("t".to_owned(), text.to_owned())], old)
    };
    let first = build(&one, &Catalog::empty());
    let (same, spelt) = (build(&one, &first), build(&other, &first));
    let shape = |catalogue: &Catalog| Arc::clone(&catalogue.tool("s1:t").unwrap().shape);
    assert!(shape(&first).published.get().is_none());
    assert!(Arc::ptr_eq(&shape(&first), &shape(&same)));
    assert_eq!(shape(&first).pin(), shape(&spelt).pin(), "the same meaning");
    assert_ne!(shape(&first).print(), shape(&spelt).print());
    assert_eq!(*shape(&spelt).definition, *other);
    assert_eq!(shape(&first).input_schema(), Some(r#"{"type":"object","title":"a"}"#));
}

/// Returns a tool with this input schema.
pub(in crate::gateway) fn tool_with_schema(schema: &str) -> Arc<Tool> {
    let text = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
    let catalogue = build_with_tools(1, vec![server(1, &[])], [("t".to_owned(), text)], &Catalog::empty());
    Arc::clone(catalogue.tool("s1:t").unwrap())
}
