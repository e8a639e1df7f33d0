use proptest::prelude::*;

use super::*;

fn page() -> Url {
    "https://a.example/p".parse().unwrap()
}

/// Returns the policy of the element `#x`, and why the page is closed.
fn policy(
    html: &str,
    headers: PolicyHeaders<'_>,
    file: Option<&str>,
) -> (EffectivePolicy, Option<PolicyClosed>) {
    let dom = WebDom::parse(html).unwrap();
    let url: Url = "https://a.example/policy.json".parse().unwrap();
    let files = file.map(|text| PageFile { url: &url, body: Some(text.as_bytes()) });
    let gates = PageGates::read(&dom, &page(), headers, files.as_slice(), &mut Vec::new());
    (gates.of(dom.by_id("x").unwrap()), gates.closed())
}

fn of(html: &str) -> EffectivePolicy {
    policy(html, PolicyHeaders::default(), None).0
}

fn with_header(html: &str, header: &str) -> (EffectivePolicy, Option<PolicyClosed>) {
    policy(html, PolicyHeaders { policy: Some(header), source: None }, None)
}

#[test]
fn attributes_open_and_ancestors_close() {
    use WamGate::{Closed, Open, Unstated};
    for (html, data, interaction) in [
        ("<form id=x>", Unstated, Unstated),
        ("<form id=x wam-policy-output=data>", Open, Closed),
        ("<form id=x wam-policy-output='data  interaction'>", Open, Open),
        ("<form id=x wam-policy-output=mutable>", Open, Open),
        ("<form id=x wam-policy-output=''>", Closed, Closed),
        ("<form id=x wam-policy-output='readonly DATA'>", Closed, Closed),
        ("<div wam-policy-output='data interaction'><form id=x>", Open, Open),
        ("<div wam-policy-output=data><form id=x wam-policy-output=mutable>", Open, Closed),
        ("<body wam-policy-output=readonly><form id=x wam-policy-output=mutable>", Closed, Closed),
        ("<form id=x wam-policy-output=mutable wam-policy-license=MIT>", Open, Open),
        (
            "<div wam-policy-license=proprietary><form id=x wam-policy-output=mutable wam-policy-license=MIT>",
            Closed,
            Closed,
        ),
        ("<form id=x wam-policy-license='(MIT OR CC-BY-ND-4.0)' wam-policy-output=mutable>", Closed, Closed),
        ("<form id=x wam-policy-license=proprietary>", Closed, Closed),
    ] {
        let policy = of(html);
        assert_eq!((policy.data, policy.interaction), (data, interaction), "{html}");
        assert!(policy.is_visible && policy.shows_text, "{html}");
    }
}

#[test]
fn hidden_elements_stay_hidden() {
    for (html, is_visible, shows_text) in [
        ("<form id=x wam-policy-input=none>", false, false),
        ("<div wam-policy-input=none><form id=x wam-policy-input=all>", false, false),
        ("<form id=x wam-policy-input=''>", false, false),
        ("<form id=x wam-policy-input=text>", false, false),
        ("<form id=x wam-policy-input=structure>", true, false),
        ("<form id=x wam-policy-input='attributes text'>", true, true),
        ("<div wam-policy-input='structure'><form id=x wam-policy-input=all>", true, false),
    ] {
        let policy = of(html);
        assert_eq!((policy.is_visible, policy.shows_text), (is_visible, shows_text), "{html}");
    }
}

const OPEN: &str =
    "<form id=x class=f wam-intent-category='note quote' wam-policy-output='data interaction'>";

#[test]
fn a_global_policy_narrows() {
    use WamGate::{Closed, Open};
    for (header, is_visible, data, interaction) in [
        ("{}", true, Open, Open),
        (r#"{"defaults":{"wam-policy-output":["data"]},"report-only":true}"#, true, Open, Closed),
        (r#"{"defaults":{"wam-policy-output":["readonly"]}}"#, true, Closed, Closed),
        (r#"{"defaults":{"wam-policy-input":["none"]}}"#, false, Open, Open),
        (r##"{"constraints":{"block-selectors":["p","body > #x"]}}"##, false, Open, Open),
        (r#"{"constraints":{"block-selectors":["body"]}}"#, false, Open, Open),
        (
            r#"{"constraints":{"category-rules":{"quote":{"wam-policy-output":["data"]}}}}"#,
            true,
            Open,
            Closed,
        ),
        (r#"{"constraints":{"category-rules":{"quote":{"wam-policy-input":["none"]}}}}"#, false, Open, Open),
        (r#"{"constraints":{"category-rules":{"other":{"wam-policy-input":["none"]}}}}"#, true, Open, Open),
        (r#"{"constraints":{"dependencies":[{"trigger":".f","requires":".terms"}]}}"#, false, Open, Open),
        (r#"{"constraints":{"dependencies":[{"trigger":".f","requires":"form"}]}}"#, true, Open, Open),
        (
            r#"{"constraints":{"dependencies":[{"trigger":".f","requires":"i","scope":"output"}]}}"#,
            true,
            Open,
            Open,
        ),
    ] {
        let (policy, closed) = with_header(OPEN, header);
        assert_eq!((policy.is_visible, closed), (is_visible, None), "{header}");
        assert_eq!((policy.data, policy.interaction), (data, interaction), "{header}");
    }
}

#[test]
fn what_cannot_be_read_or_kept_closes_the_page() {
    for (header, why) in [
        ("", PolicyClosed::Header),
        ("{}, {}", PolicyClosed::Header),
        (r#"{"defaults":[]}"#, PolicyClosed::Header),
        (r#"{"defaults":{"wam-policy-output":"data"}}"#, PolicyClosed::Header),
        (r#"{"constraints":{"block-selectors":[1]}}"#, PolicyClosed::Header),
        (r#"{"constraints":{"block-selectors":["a:hover"]}}"#, PolicyClosed::Unsupported),
        (
            r#"{"constraints":{"dependencies":[{"trigger":".f","requires":".t","failure-mode":"error"}]}}"#,
            PolicyClosed::Dependency,
        ),
    ] {
        let (policy, closed) = with_header(OPEN, header);
        assert_eq!((policy.is_visible, closed), (false, Some(why)), "{header}");
    }
    let many = serde_json::json!({"constraints": {"block-selectors": vec!["p"; 25]}}).to_string();
    assert_eq!(with_header(OPEN, &many).1, Some(PolicyClosed::Unsupported));
    let meta = |content: &str| format!("<meta name=WAM-policy content='{content}'>{OPEN}");
    assert!(of(&meta("no policy")).is_visible, "a malformed meta element says nothing");
    assert!(!of(&meta(r#"{"constraints":{"block-selectors":["a::b"]}}"#)).is_visible);
    assert!(!of(&(meta("{}").repeat(9))).is_visible, "too many of them");
}

#[test]
fn metas_and_files_narrow_as_well() {
    let html = format!(
        r#"<meta name="wam-policy" content='{{"defaults":{{"wam-policy-output":["interaction"]}}}}'>{OPEN}"#
    );
    let (policy, _) = with_header(&html, r#"{"defaults":{"wam-policy-output":["data"]}}"#);
    assert_eq!((policy.data, policy.interaction), (WamGate::Closed, WamGate::Closed));

    let source = PolicyHeaders { policy: None, source: Some("/policy.json") };
    for (headers, file, closed) in [
        (source, Some("{}"), None),
        (source, None, Some(PolicyClosed::FileWanted)),
        (source, Some("no"), Some(PolicyClosed::File)),
        (
            PolicyHeaders { source: Some("https://b.example/policy.json"), ..source },
            Some("{}"),
            Some(PolicyClosed::File),
        ),
        (
            PolicyHeaders { source: Some("data:application/json,{}"), ..source },
            Some("{}"),
            Some(PolicyClosed::File),
        ),
        (
            PolicyHeaders { source: Some("http://a.example/policy.json"), ..source },
            Some("{}"),
            Some(PolicyClosed::File),
        ),
    ] {
        let (policy, why) = policy_of(headers, file);
        assert_eq!((policy.is_visible, why), (closed.is_none(), closed), "{headers:?}");
    }
    let html = format!("<meta name=wam-policy-src content=policy.json>{OPEN}");
    assert!(!of(&html).is_visible);
    let (policy, why) =
        self::policy(&html, PolicyHeaders::default(), Some(r#"{"defaults":{"wam-policy-output":["data"]}}"#));
    assert_eq!((why, policy.data, policy.interaction), (None, WamGate::Open, WamGate::Closed));
}

fn policy_of(headers: PolicyHeaders<'_>, file: Option<&str>) -> (EffectivePolicy, Option<PolicyClosed>) {
    policy(OPEN, headers, file)
}

#[test]
fn defaults_hold_where_elements_say_nothing() {
    let (policy, _) =
        with_header("<form id=x>", r#"{"defaults":{"wam-policy-output":["data","interaction"]}}"#);
    assert_eq!((policy.data, policy.interaction), (WamGate::Open, WamGate::Open));
    let rule = r#"{"constraints":{"category-rules":{"c":{"wam-policy-output":["mutable"]}}}}"#;
    let (policy, _) = with_header("<form id=x wam-intent-category=c>", rule);
    assert_eq!(policy.data, WamGate::Unstated, "a constraint permits nothing by itself");
}

fn tokens() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec!["data", "interaction", "mutable", "readonly", "style", "none"]);
    prop::collection::vec(token, 0..4).prop_map(|tokens| tokens.join(" "))
}

fn channels() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec!["none", "structure", "text", "attributes", "all", "media"]);
    prop::collection::vec(token, 0..4).prop_map(|tokens| tokens.join(" "))
}

proptest! {
    #[test]
    fn no_layer_opens_what_another_one_closed(
        outputs in prop::collection::vec(prop::option::of(tokens()), 4),
        inputs in prop::collection::vec(prop::option::of(channels()), 4),
        without in 0_usize..4,
    ) {
        let build = |dropped: Option<usize>| {
            let output = |at: usize| outputs[at].clone().filter(|_| dropped != Some(at));
            let input = |at: usize| inputs[at].clone().filter(|_| dropped != Some(at));
            let attributes = |at: usize| {
                let one = output(at).map(|o| format!(" wam-policy-output='{o}'")).unwrap_or_default();
                one + &input(at).map(|i| format!(" wam-policy-input='{i}'")).unwrap_or_default()
            };
            let words = |text: String| text.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>();
            let document = |at: usize| {
                let mut defaults = serde_json::Map::new();
                defaults.extend(output(at).map(|o| ("wam-policy-output".to_owned(), words(o).into())));
                defaults.extend(input(at).map(|i| ("wam-policy-input".to_owned(), words(i).into())));
                serde_json::json!({"defaults": defaults}).to_string()
            };
            let html = format!(
                "<meta name=wam-policy content='{}'><div{}><form id=x{}>", document(1), attributes(2), attributes(3));
            with_header(&html, &document(0)).0
        };
        let (all, fewer) = (build(None), build(Some(without)));
        prop_assert!(!all.is_visible || fewer.is_visible);
        prop_assert!(!all.shows_text || fewer.shows_text);
        for (all, fewer) in [(all.data, fewer.data), (all.interaction, fewer.interaction)] {
            prop_assert!(fewer != WamGate::Closed || all == WamGate::Closed, "{fewer:?} became {all:?}");
        }
    }
}
