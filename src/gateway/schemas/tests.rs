use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::gateway::catalog::tests::tool_with_schema;

const BYTES: usize = 1024 * 1024;

fn tenant(n: u128) -> TenantId {
    TenantId(uuid::Uuid::from_u128(n))
}

async fn check(schemas: &Schemas, tool: &Arc<Tool>, arguments: &'static str) -> (Checked, bool) {
    schemas.check(tenant(1), tool, &Bytes::from_static(arguments.as_bytes())).await
}

#[tokio::test]
async fn a_schema_is_compiled_once_and_then_quick() {
    let schemas = Schemas::new(BYTES);
    let tool = tool_with_schema(r#"{"required":["a"]}"#);
    assert_eq!(check(&schemas, &tool, r#"{"a":1}"#).await, (Checked::Fit, true));
    assert_eq!(check(&schemas, &tool, r#"{"a":1}"#).await, (Checked::Fit, false));
    assert!(matches!(check(&schemas, &tool, "{}").await, (Checked::Unfit(Unfit::Rule(_)), false)));
    assert_eq!(kept(&schemas.kept).len(), 1);
    schemas.forget(tenant(1));
    assert_eq!(kept(&schemas.kept).len(), 0);
}

#[tokio::test]
async fn one_that_is_not_used_is_remembered_and_one_that_is_too_large_is_not_used() {
    let schemas = Schemas::new(BYTES);
    let broken = tool_with_schema(r#"{"type":"nonsense"}"#);
    for waited in [true, false] {
        let (checked, took_turn) = check(&schemas, &broken, "{}").await;
        assert!(matches!(&checked, Checked::Unchecked(why) if why.contains("type")), "{checked:?}");
        assert_eq!(took_turn, waited);
    }
    let numbers: Vec<String> = (0..30_000).map(|n| n.to_string()).collect();
    let large = tool_with_schema(&format!(r#"{{"enum":[{}]}}"#, numbers.join(",")));
    let (checked, _) = check(&schemas, &large, "{}").await;
    assert!(matches!(&checked, Checked::Unchecked(why) if why.contains("262144 bytes")), "{checked:?}");
    assert!(kept(&schemas.kept).bytes() < 4096);
}

#[tokio::test]
async fn what_is_kept_never_exceeds_its_bound() {
    let schemas = Schemas::new(BYTES);
    for n in 0..40 {
        let numbers: Vec<String> = (n..n + 4000).map(|n| n.to_string()).collect();
        let tool =
            tool_with_schema(&format!(r#"{{"properties":{{"a":{{"enum":[{}]}}}}}}"#, numbers.join(",")));
        assert_eq!(check(&schemas, &tool, "{}").await.0, Checked::Fit);
        let bytes = kept(&schemas.kept).bytes();
        assert!(bytes <= BYTES / 4, "{bytes}");
    }
    assert!(kept(&schemas.kept).len() > 1);
}

// on one thread, so that every task waits where it is meant to before the first goes on
#[tokio::test]
async fn tenants_take_turns() {
    let schemas = Arc::new(Schemas { places: Arc::new(Semaphore::new(1)), ..Schemas::new(BYTES) });
    let tool = tool_with_schema(r#"{"type":"object"}"#);
    let before = Arc::clone(&schemas.places).acquire_owned().await.unwrap();
    let (done, mut order) = tokio::sync::mpsc::channel(8);
    for n in [1, 1, 1, 1, 2] {
        let waiting = schemas.places.available_permits();
        let (schemas, tool, done) = (Arc::clone(&schemas), Arc::clone(&tool), done.clone());
        tokio::spawn(async move {
            schemas.check(tenant(n), &tool, &Bytes::from_static(b"{}")).await;
            let _sent = done.send(n).await;
        });
        assert_eq!(waiting, 0);
    }
    // both tenants' first pieces wait for the place, the others for their tenant's turn
    while schemas.turns.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    drop(before);
    let mut ended = Vec::new();
    for _ in 0..5 {
        ended.push(timeout(Duration::from_secs(30), order.recv()).await.unwrap().unwrap());
    }
    let second = ended.iter().position(|n| *n == 2).unwrap();
    assert!(second <= 2, "{ended:?}");
}
