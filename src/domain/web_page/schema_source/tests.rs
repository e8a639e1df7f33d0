use serde_json::json;

use super::*;
use crate::domain::web_page::gates::PolicyHeaders;

fn read(text: &str) -> AuthoredTool {
    AuthoredTool::read(text).unwrap()
}

#[test]
fn a_flat_map_and_a_schema_are_one() {
    let flat = r#"{"name":"n","description":"d","parameters":{"a":{"type":"string","format":"date"},
        "b":{"type":["integer","null"],"minimum":1,"required":true,"$ref":"x","examples":[1]}},"required":["a","gone"]}"#;
    let schema = r#"{"name":"n","description":"d","inputSchema":{"type":"object","properties":{
        "a":{"type":"string","format":"date"},"b":{"type":"integer","minimum":1}},"required":["a","b"]}}"#;
    let tool = read(flat);
    assert_eq!(tool, read(schema));
    assert_eq!(tool.required.iter().collect::<Vec<_>>(), ["a", "b"]);
    let odd = r#"{"parameters":{"type":{"type":"string"},"properties":{"enum":["x",1,true]}}}"#;
    let odd = read(odd);
    assert_eq!(odd.parameters.len(), 2, "parameters may have the names of keywords");
    assert_eq!(odd.parameters[0].1.options, Some(vec!["x".into(), "1".into(), "true".into()]));
    assert_eq!(read("{}").parameters, []);
}

#[test]
fn only_known_members_are_kept() {
    let spec = json!({"type":"array","items":{"enum":["a","b"],"$ref":"#"},"default":{"x":1},"anyOf":[],"title":"t",
        "description":7,"minLength":-1,"pattern":"^a$","$ref":"https://b.example/"});
    let spec = ParameterSpec::read(spec.as_object().unwrap());
    let shown = json!({"type":"array","items":{"type":"string","enum":["a","b"]},"pattern":"^a$"});
    assert_eq!(Value::Object(spec.schema()), shown);
}

#[test]
fn texts_that_are_no_tool_schema() {
    let many: Map<String, Value> = (0..201).map(|n| (format!("p{n}"), json!({}))).collect();
    let many = json!({"parameters": many}).to_string();
    for text in
        ["", "[]", "{", r#"{"parameters":[]}"#, r#"{"name":"a","name":"b"}"#, &many, &" ".repeat(70_000)]
    {
        assert_eq!(AuthoredTool::read(text), Err(SchemaFault::Malformed));
    }
}

/// Returns the name of the schema of `#f`, or its fault, and the files that are wanted.
fn found(
    html: &str,
    policy: Option<&str>,
    file: Option<&str>,
) -> (Option<Result<String, SchemaFault>>, usize) {
    let dom = WebDom::parse(html).unwrap();
    let page: Url = "https://a.example/dir/p".parse().unwrap();
    let url: Url = "https://a.example/dir/tool.json".parse().unwrap();
    let files =
        file.map(|text| PageFile { url: &url, body: Some(text.as_bytes()).filter(|text| !text.is_empty()) });
    let mut wanted = Vec::new();
    let headers = PolicyHeaders { policy, source: None };
    let gates = PageGates::read(&dom, &page, headers, files.as_slice(), &mut wanted);
    let form = dom.by_id("f").unwrap();
    let tool = wam_schema(&dom, form, &page, &gates, files.as_slice(), &mut wanted);
    (tool.map(|tool| tool.map(|tool| tool.name.unwrap_or_default())), wanted.len())
}

#[test]
fn references_lead_to_scripts_and_files_of_the_page() {
    use SchemaFault::{Malformed, Missing, Origin, Unreachable, Wanted};
    let script = r#"<script id=s type="Application/wam-tool+json">{"name":"inline"}</script>"#;
    let map = r##"{"tool-schemas":{"#f":"tool.json","a:b":"x"}}"##;
    let file = Some(r#"{"name":"file"}"#);
    for (reference, policy, file, expected, wanted) in [
        (None, None, None, None, 0),
        (Some(""), None, None, None, 0),
        (Some("#s"), None, None, Some(Ok("inline")), 0),
        (Some("#s"), Some(map), file, Some(Ok("inline")), 0),
        (None, Some(map), file, Some(Ok("file")), 0),
        (Some("#f"), None, None, Some(Err(Missing)), 0),
        (Some("#t"), None, None, Some(Err(Missing)), 0),
        (Some("/dir/tool.json"), None, file, Some(Ok("file")), 0),
        (Some("tool.json"), None, None, Some(Err(Wanted)), 1),
        (Some("tool.json"), None, Some(""), Some(Err(Unreachable)), 0),
        (Some("tool.json"), None, Some("no"), Some(Err(Malformed)), 0),
        (Some("//b.example/tool.json"), None, None, Some(Err(Origin)), 0),
        (Some("data:application/json,{}"), None, None, Some(Err(Origin)), 0),
        (Some("javascript:0"), None, None, Some(Err(Origin)), 0),
    ] {
        let attribute = reference.map(|to| format!("wam-intent-tool-schema='{to}'")).unwrap_or_default();
        let html = format!("<form id=f {attribute}></form>{script}<script id=t>{{}}</script>");
        let expected = expected.map(|expected| expected.map(str::to_owned));
        assert_eq!(found(&html, policy, file), (expected, wanted), "{reference:?}");
    }
}

#[test]
fn webmcp_attributes() {
    let html = "<form id=f toolname=order tooldescription='Order it'>\
        <input id=a toolparamtitle=Size toolparamdescription='in cm'><input id=b toolparamdescription=' '></form><form id=g>";
    let dom = WebDom::parse(html).unwrap();
    let id = |id: &str| dom.by_id(id).unwrap();
    let tool = webmcp_tool(&dom, id("f")).unwrap();
    assert_eq!((tool.name.as_deref(), tool.description.as_deref()), (Some("order"), Some("Order it")));
    assert_eq!(webmcp_tool(&dom, id("g")), None);
    assert_eq!(webmcp_parameter(&dom, id("a")).as_deref(), Some("Size: in cm"));
    assert_eq!(webmcp_parameter(&dom, id("b")), None);
}
