//! The official clients on `/mcp/direct`.

use serde_json::{Value, json};

use super::script::Servers;
use super::stacks::run_all_at;
use super::{keys, servers};
use crate::support::upstream::Offers;
use crate::support::{DIRECT, Stage, Tool, Upstream};

/// A tool that clients hold results against a schema of, and that has odd members which they would refuse a list for.
const TYPED: &str = r#"{"name":"typed","title":null,"inputSchema":{"type":"object","required":["n"]},
    "outputSchema":{"type":"object","properties":{"t":{"type":"string"}},"required":["t"]},
    "annotations":{"readOnlyHint":true,"idempotentHint":null}}"#;

/// With members that clients would refuse a list for.
fn offers() -> Offers {
    Offers {
        prompts: Some(vec![
            r#"{"name":"sum_up","title":null,"arguments":[{"name":"n","required":true}]}"#.to_owned(),
            r#"{"name":"odd","arguments":[{"title":"nameless"}],"icons":7,"_meta":[]}"#.to_owned(),
        ]),
        resources: Some(vec![
            r#"{"uri":"note://all","name":"All","size":1.5,"annotations":{"priority":2}}"#.to_owned(),
            r#"{"uri":"no uri at all","name":"x"}"#.to_owned(),
            r#"{"uri":"http://h:99999/","name":"x"}"#.to_owned(),
            r#"{"uri":"note://nameless"}"#.to_owned(),
        ]),
        templates: vec![r#"{"uriTemplate":"note://{id}","name":"One","mimeType":null}"#.to_owned()],
        completes: true,
        ..Offers::default()
    }
}

/// Output schemas that some client cannot compile, by the tool's name.
const OUTPUTS: [(&str, &str); 7] = [
    ("remote", r#"{"a":{"$ref":"https://x.example/y"}}"#),
    ("missing", r##"{"a":{"$ref":"#/$defs/Missing"}}"##),
    ("odd_type", r#"{"a":{"type":"nope"}}"#),
    ("open_pattern", r#"{"a":{"type":"string","pattern":"("}}"#),
    ("old_pattern", r#"{"a":{"type":"string","pattern":"^[\\w-.]+$"}}"#),
    ("circle", r##"{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"$ref":"#/$defs/A"}}"##),
    ("yes", "{\"a\":true}"),
];

/// Definitions that some client cannot read at all, by the tool's name.
fn unreadable() -> Vec<Tool> {
    let digits = "9".repeat(5000);
    let tool = |name: &str, members: &str| {
        let schema = if members.contains("inputSchema") { "" } else { r#","inputSchema":{"type":"object"}"# };
        Tool::raw(name, &format!(r#"{{"name":"{name}"{schema}{members}}}"#))
    };
    vec![
        tool("surrogate", r#","x-v":"\ud800""#),
        tool("digits", &format!(r#","x-n":{digits}"#)),
        tool("infinite", r#","inputSchema":{"type":"object","properties":{"a":{"maximum":1e400}}}"#),
        tool("dialect", r#","inputSchema":{"type":"object","$schema":7}"#),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_on_the_direct_endpoint() {
    let commands = servers::commands();
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands), ("MCPPROXY__DIRECT__ENABLED", "true")];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let _servers = Servers::of(&tenant).await;
    let good = r#"{"resultType":"complete","content":[],"structuredContent":{"t":"yes"}}"#;
    let output = |(name, properties): (&str, &str)| {
        let schema = format!(r#"{{"type":"object","properties":{properties}}}"#);
        let members = format!(r#""inputSchema":{{"type":"object"}},"outputSchema":{schema},"x-n":1e400"#);
        Tool::raw(name, &format!(r#"{{"name":"{name}",{members}}}"#))
    };
    let bad = Upstream::modern([OUTPUTS.map(output).to_vec(), unreadable()].concat()).await;
    tenant.add("bad", &bad).await;
    let strange = Upstream::modern(vec![
        Tool::raw("typed", TYPED).returns(good),
        Tool::raw("any", r#"{"name":"any","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}"#),
        Tool::raw("none", r#"{"name":"none","inputSchema":{}}"#),
    ])
    .await;
    strange.set_offers(offers());
    tenant.add("strange", &strange).await;
    let call = |name: &str, arguments: Value| json!({"call": {"name": name, "arguments": arguments}});
    for (query, separator) in [("", ":"), ("?names=safe", "__")] {
        let name = |tool: &str| tool.replace(':', separator);
        let steps = json!([
            {"list": true},
            call(&name("everything:echo"), json!({"message": "straight"})),
            call(&name("strange:typed"), json!({"n": 1})),
            call(&name("strange:typed"), json!({})),
            call("retrieve_tools", json!({"query": "echo"})),
            {"offers": {"prompt": name("strange:sum_up"), "uri": "note://7"}},
        ]);
        let keys = keys(&tenant, json!({"direct_endpoint": true})).await;
        let endpoint = format!("{}{DIRECT}{query}", stage.gateway.url);
        for (stack, key, code, report) in run_all_at(&endpoint, keys, &steps).await {
            let (who, step) = (stack.name, |at: usize| &report["steps"][at]);
            assert_eq!(code, Some(0), "{who}: {report}");
            let listed = step(0)["ok"]["tools"].to_string();
            for tool in ["everything:echo", "own:look", "strange:typed", "strange:any"] {
                assert!(listed.contains(&format!("\"{}\"", name(tool))), "{who}: {tool} is not in {listed}");
            }
            for (tool, _) in OUTPUTS {
                assert!(listed.contains(&name(&format!("bad:{tool}"))), "{who}: {tool} is not in {listed}");
            }
            assert!(!listed.contains("surrogate") && !listed.contains("infinite"), "{who}: {listed}");
            assert!(step(1)["ok"].to_string().contains("straight"), "{who}: {}", step(1));
            assert_eq!(step(2)["ok"]["structuredContent"], json!({"t": "yes"}), "{who}: {}", step(2));
            assert_eq!(step(3)["ok"]["isError"], true, "{who}: {}", step(3));
            assert!(step(3)["ok"].to_string().contains("Invalid arguments"), "{who}: {}", step(3));
            assert_eq!(step(4)["error"]["code"], -32602, "{who}: {}", step(4));
            let offers = &step(5)["ok"];
            let said = offers.to_string();
            assert!(said.contains(&format!("\"{}\"", name("strange:sum_up"))), "{who}: {}", step(5));
            assert!(offers["resources"].to_string().contains("note://all"), "{who}: {said}");
            assert!(offers["templates"].to_string().contains("note://{id}"), "{who}: {said}");
            assert!(offers["prompt"]["messages"][0].to_string().contains("n"), "{who}: {said}");
            assert_eq!(offers["contents"]["contents"][0]["blob"], "AAH/+w==", "{who}: {said}");
            assert_eq!(offers["completion"]["completion"]["values"], json!(["one", "two"]), "{who}: {said}");
            for record in tenant.records(&format!("key={}&type=direct_call", key.id), 6).await {
                assert_eq!(record["source"], "direct", "{who}: {record}");
            }
        }
    }
}
