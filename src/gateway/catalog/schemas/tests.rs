use std::time::Duration;

use super::*;
use crate::gateway::catalog::lists::Lists;
use crate::gateway::catalog::snapshot::tests::tool_with_schema;
use crate::upstream::{Egress, Pool};

const BYTES: usize = 1024 * 1024;

fn tenant(n: u128) -> TenantId {
    TenantId(uuid::Uuid::from_u128(n))
}

/// Checks as the gateway does; also returns whether the check was a long one.
fn check(schemas: &Schemas, tool: &Tool, arguments: &'static str) -> (SchemaCheck, bool) {
    let arguments = Bytes::from_static(arguments.as_bytes());
    match schemas.check_quickly(tenant(1), tool, &arguments) {
        Some(checked) => (checked, false),
        None => (schemas.check_whole(tenant(1), tool, &arguments), true),
    }
}

#[test]
fn a_schema_is_compiled_once_and_then_quick() {
    let schemas = Schemas::new(BYTES);
    let tool = tool_with_schema(r#"{"required":["a"]}"#);
    assert_eq!(check(&schemas, &tool, r#"{"a":1}"#), (SchemaCheck::Fit, true));
    assert_eq!(check(&schemas, &tool, r#"{"a":1}"#), (SchemaCheck::Fit, false));
    assert!(matches!(check(&schemas, &tool, "{}"), (SchemaCheck::Unfit(Unfit::Rule(_)), false)));
    assert_eq!(schemas.kept.lock().len(), 1);
    schemas.forget(tenant(1));
    assert_eq!(schemas.kept.lock().len(), 0);
}

#[test]
fn one_that_is_not_used_is_remembered_and_one_that_is_too_large_is_not_used() {
    let schemas = Schemas::new(BYTES);
    let broken = tool_with_schema(r#"{"type":"nonsense"}"#);
    for waited in [true, false] {
        let (checked, took_turn) = check(&schemas, &broken, "{}");
        assert!(matches!(&checked, SchemaCheck::Unchecked(why) if why.contains("type")), "{checked:?}");
        assert_eq!(took_turn, waited);
    }
    let numbers: Vec<String> = (0..30_000).map(|n| n.to_string()).collect();
    let large = tool_with_schema(&format!(r#"{{"enum":[{}]}}"#, numbers.join(",")));
    let (checked, _) = check(&schemas, &large, "{}");
    assert!(matches!(&checked, SchemaCheck::Unchecked(why) if why.contains("262144 bytes")), "{checked:?}");
    assert!(schemas.kept.lock().bytes() < 4096);
}

#[test]
fn what_is_kept_never_exceeds_its_bound() {
    let schemas = Schemas::new(BYTES);
    for n in 0..40 {
        let numbers: Vec<String> = (n..n + 4000).map(|n| n.to_string()).collect();
        let tool =
            tool_with_schema(&format!(r#"{{"properties":{{"a":{{"enum":[{}]}}}}}}"#, numbers.join(",")));
        assert_eq!(check(&schemas, &tool, "{}").0, SchemaCheck::Fit);
        let bytes = schemas.kept.lock().bytes();
        assert!(bytes <= BYTES / 4, "{bytes}");
    }
    assert!(schemas.kept.lock().len() > 1);
}

fn catalogs() -> Arc<Catalogs> {
    let upstreams = Arc::new(Pool::new(Arc::new(Egress::new(vec![], vec![])), None));
    Arc::new(Catalogs { upstreams, lists: Lists::new(BYTES), schemas: Schemas::new(BYTES) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_does_not_come_in_time_is_given_up() {
    let catalogs = catalogs();
    let tool = tool_with_schema(r#"{"required":["a"]}"#);
    let arguments = Bytes::from_static(b"{}");
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (running, runs) = tokio::sync::oneshot::channel();
    let upstreams = Arc::clone(&catalogs.upstreams);
    let long = tokio::spawn(async move {
        let work = move || {
            running.send(()).unwrap();
            wait.recv().unwrap_err();
        };
        upstreams.in_turn(tenant(1).0, work).await;
    });
    runs.await.unwrap();
    let check = || catalogs.check_schema(tenant(1), &tool, &arguments);
    let late = tokio::time::timeout(Duration::from_secs(30), check()).await;
    assert_eq!(late.unwrap(), (SchemaCheck::Late, true));
    drop(go);
    long.await.unwrap();
    assert!(matches!(check().await.0, SchemaCheck::Unfit(_)));
}
