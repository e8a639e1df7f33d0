//! Official clients that answer servers by themselves, on two replicas that take turns.

use serde_json::{Value, json};
use tokio::sync::watch;

use super::stacks::{MODERN_STACKS, asking};
use crate::support::upstream::{Say, Talk};
use crate::support::{Balancer, DIRECT, Gateway, Stage, Tool, Upstream};

const ON: (&str, &str) = ("MCPPROXY__DIRECT__ENABLED", "true");

/// Asks for a name under this state.
fn question(state: &str) -> Say {
    let form = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let params = json!({"mode": "form", "message": "Who?", "requestedSchema": form});
    let requests = json!({"who": {"method": "elicitation/create", "params": params}});
    let asked = json!({"resultType": "input_required", "inputRequests": requests, "requestState": state});
    Say::Result(asked.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn official_clients_answer_round_by_round() {
    let stage = Stage::with(&[ON]).await;
    let other = Gateway::start(&stage.database, &[ON]).await;
    let tenant = stage.tenant("acme").await;
    let done = r#"{"resultType":"complete","content":[{"type":"text","text":"done"}]}"#;
    let rounds = vec![
        (String::new(), question("one")),
        (r#""one""#.to_owned(), question("two")),
        (r#""two""#.to_owned(), Say::Result(done.to_owned())),
    ];
    let upstream = Upstream::modern(vec![Tool::writes("ask").says(Say::Rounds(rounds))]).await;
    tenant.add("up", &upstream).await;
    let balancer = Balancer::before(&[&stage.gateway, &other]).await;
    let answer = json!({"action": "accept", "content": {"name": "ana"}});
    let arguments = json!({"n": 1});
    let inner = json!({"name": "up:ask", "args": arguments});
    for stack in &MODERN_STACKS {
        let key = tenant.agent_with(json!({"direct_endpoint": true})).await;
        let calls = [("/mcp", "call_tool_write", &inner), (DIRECT, "up:ask", &arguments)];
        for (path, name, arguments) in calls {
            let steps = json!([{"call": {"name": name, "arguments": arguments}}]);
            let report = asking(stack, Some(&answer), &format!("{}{path}", balancer.url), &key, &steps).await;
            assert_eq!(report["steps"][0]["ok"]["content"][0]["text"], "done", "{report}");
            let sent: Vec<Value> =
                upstream.calls().iter().map(|call| serde_json::from_str(&call.params).unwrap()).collect();
            let [.., second, third] = sent.as_slice() else { panic!("{sent:?}") };
            for (params, state) in [(second, "one"), (third, "two")] {
                assert_eq!(params["requestState"], state, "{params}");
                assert_eq!(params["inputResponses"]["who"]["content"], json!({"name": "ana"}), "{params}");
            }
        }
        let passed = balancer.passed(key.key.as_deref().unwrap());
        let calls: Vec<usize> =
            passed.iter().filter(|sent| sent.rpc == "tools/call").map(|sent| sent.replica).collect();
        assert!(calls.contains(&0) && calls.contains(&1), "{passed:?}");
    }
    assert_eq!(upstream.counts().calls, 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn official_clients_answer_handshake_servers() {
    let stage = Stage::with(&[ON]).await;
    let other = Gateway::start(&stage.database, &[ON]).await;
    let tenant = stage.tenant("acme").await;
    let form = r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}"#;
    let (_gate, gate) = watch::channel(true);
    let asks = vec![("elicitation/create", form), ("elicitation/create", form)];
    let talk = Talk { asks, gate, bytes: 0, is_patient: true };
    let upstream = Upstream::handshake(vec![Tool::writes("ask").says(Say::Talks(talk))]).await;
    tenant.add("up", &upstream).await;
    let balancer = Balancer::before(&[&stage.gateway, &other]).await;
    let answer = json!({"action": "accept", "content": {"name": "ana"}});
    for stack in &MODERN_STACKS {
        let key = tenant.agent_with(json!({"direct_endpoint": true})).await;
        let inner = json!({"name": "up:ask", "args": {"n": 1}});
        for (path, name, arguments) in
            [("/mcp", "call_tool_write", inner), (DIRECT, "up:ask", json!({"n": 1}))]
        {
            let steps = json!([{"call": {"name": name, "arguments": arguments}}]);
            let report = asking(stack, Some(&answer), &format!("{}{path}", balancer.url), &key, &steps).await;
            let said = report["steps"][0]["ok"]["content"][0]["text"].to_string();
            assert_eq!(said.matches("ana").count(), 2, "{report}");
        }
    }
    assert_eq!(upstream.counts().calls, 2 * MODERN_STACKS.len());
}
