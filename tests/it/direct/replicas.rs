//! Equal lists on every replica: cold or warm, behind a pooler or not.

use serde_json::json;

use super::{ON, scene};
use crate::support::{DIRECT, Gateway, Mcp, PgBouncer, Tool, Upstream, upstream};

#[tokio::test]
async fn a_replica_that_never_met_a_server_lists_the_same_bytes() {
    let (stage, tenant) = scene().await;
    let one = Upstream::handshake(upstream::zoo()).await;
    let other = Upstream::modern(vec![Tool::reads("größe"), Tool::writes("x.y")]).await;
    tenant.add("zoo", &one).await;
    tenant.add("a-b", &other).await;
    let agent = tenant.agent_with(json!({"max_operation": "write"})).await;
    let pooler = PgBouncer::start(&stage.database).await;
    let (pooled, direct) = (pooler.url(&stage.database), stage.database.url());
    let cold = Gateway::start(&stage.database, &[ON]).await;
    let behind = Gateway::start(
        &stage.database,
        &[
            ON,
            ("MCPPROXY__DATABASE__URL", &pooled),
            ("MCPPROXY__DATABASE__DIRECT_URL", &direct),
            ("MCPPROXY__DATABASE__STATEMENT_CACHE", "0"),
        ],
    )
    .await;
    let asked = one.counts().requests;
    for names in ["colon", "safe"] {
        let path = format!("{DIRECT}?names={names}");
        for modern in [false, true] {
            let list = async |gateway: &Gateway| {
                let api = gateway.ask_as(&agent);
                let client = if modern { Mcp::modern(&api) } else { Mcp::bare(&api) };
                let answer = client.at(&path).request_as("1", "tools/list", "{}").await;
                answer.expect(200);
                answer.text
            };
            let here = list(&stage.gateway).await;
            assert!(here.contains("zoo") && !here.contains("wiper"), "{here}");
            for gateway in [&cold, &behind] {
                assert_eq!(list(gateway).await, here, "{names} {modern}");
                assert_eq!(list(gateway).await, here, "{names} {modern}, warm");
            }
        }
    }
    assert_eq!(one.counts().requests, asked, "a list asked the server");
}
