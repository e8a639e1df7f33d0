//! The official conformance suite, on two replicas that take turns, in front of a server that passes it.
//! `tests/conformance` has that server and the lists of what is known to fail, each with its reason.

mod logins;
mod shim;
mod suite;

use serde_json::json;

use self::shim::{Place, Shim};
use self::suite::{Suite, read_list};
use crate::support::{Balancer, DIRECT, Gateway, RealServer, Stage};

/// The name of the server at the gateway.
const SERVER: &str = "conf";
/// Of what the suite sends, each replica gets about half.
const REPLICA_REQUESTS_MIN: usize = 20;
const HANDSHAKE: Suite = Suite { revision: "2025-11-25", scenarios: 33 };
const MODERN: Suite = Suite { revision: "2026-07-28", scenarios: 50 };

/// What fails in front of the gateway counts only because this does not.
#[tokio::test(flavor = "multi_thread")]
async fn the_fixture_passes_by_itself() {
    let fixture = RealServer::conformance().await;
    tokio::join!(HANDSHAKE.run(&fixture.url, None), MODERN.run(&fixture.url, None));
}

async fn through_two_replicas(suite: Suite) {
    let place = Place::find().await;
    let settings =
        [("MCPPROXY__DIRECT__ENABLED", "true"), ("MCPPROXY__SERVER__ALLOWED_ORIGINS", &*place.url)];
    let stage = Stage::with(&settings).await;
    let other = Gateway::start(&stage.database, &settings).await;
    let tenant = stage.tenant("acme").await;
    let fixture = RealServer::conformance().await;
    let relay = json!({"elicitation": true, "sampling": true, "roots": true, "logging": true});
    // the suite changes the lists and wants to see the change, with nobody there to approve it
    tenant.add_url(SERVER, &fixture.url, json!({"auto_approve": true, "relay": relay})).await;
    let key = tenant.agent_with(json!({"direct_endpoint": true})).await;
    let balancer = Balancer::before(&[&stage.gateway, &other]).await;
    let endpoint = format!("{}{DIRECT}", place.url);
    let _shim = Shim::start(place, &balancer.url, key.key.as_deref().unwrap());
    suite.run(&endpoint, Some(&suite.known_failures())).await;
    let passed = balancer.passed(key.key.as_deref().unwrap());
    for replica in [0, 1] {
        let share = passed.iter().filter(|exchange| exchange.replica == replica).count();
        assert!(share > REPLICA_REQUESTS_MIN, "replica {replica} got {share} of {} requests", passed.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revision_2025_11_25_through_two_replicas() {
    through_two_replicas(HANDSHAKE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revision_2026_07_28_through_two_replicas() {
    through_two_replicas(MODERN).await;
}

#[test]
fn every_known_failure_has_a_reason() {
    for suite in [HANDSHAKE, MODERN] {
        for (name, reason) in read_list(&suite.known_failures()) {
            let begins = ["ruled out: ", "not yet: "].into_iter().any(|word| reason.starts_with(word));
            assert!(begins, "{} {name}: {reason:?}", suite.revision);
        }
    }
}
