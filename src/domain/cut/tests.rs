use proptest::prelude::*;

use super::*;
use crate::domain::page::{self, Content, PageRequest};

const KEYS: [&str; 3] = ["k0", "k1", "k2"];

fn keys() -> Vec<String> {
    KEYS.map(str::to_owned).to_vec()
}

fn render(raw: &str, limit: usize) -> Option<(Value, Value)> {
    let mut cut = Cut::find(raw, limit)?;
    cut.look_for_records(limit);
    let rendered = cut.render(&keys(), limit);
    Some((serde_json::from_str(&rendered.result).unwrap(), serde_json::from_str(&rendered.meta).unwrap()))
}

#[test]
fn what_is_not_too_long_is_left_alone() {
    let long = "x".repeat(60);
    for raw in [
        r#"{"content":[{"type":"text","text":"0123456789"}]}"#.to_owned(),
        format!(r#"{{"content":[{{"type":"image","data":"{long}"}},{{"type":"text","text":"short"}}]}}"#),
        format!(r#"{{"content":[{{"type":"resource","resource":{{"type":"text","text":"{long}"}}}}]}}"#),
        format!(r#"{{"content":[],"structuredContent":{{"a":"{long}"}},"x":"{long}"}}"#),
        format!(r#"{{"content":"{long}"}}"#),
        // ten characters in any spelling
        r#"{"content":[{"type":"text","text":"\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\ud83d\ude00\n"}]}"#.into(),
    ] {
        assert!(Cut::find(&raw, 10).is_none(), "{raw}");
    }
    let raw = format!(r#"{{"content":[{{"type":"text","text":"{long}"}}]}}"#);
    assert!(Cut::find(&raw, 0).is_none() && Cut::find(&raw, 60).is_none() && Cut::find(&raw, 59).is_some());
}

#[test]
fn only_the_text_and_what_repeats_it_change() {
    let raw = concat!(
        r#"{ "n":1e400,"content":[{"a":[ ],"te\u0078t":"0123\ud83d\ude006789","type":"text","z":1.0},"#,
        r#"{"type":"image","data":"0123456789abcdef"} ],"structuredContent":{"result":"0123\ud83d\ude006789"},"y":"\/"}"#
    );
    let mut cut = Cut::find(raw, 5).unwrap();
    cut.look_for_records(5);
    let rendered = cut.render(&keys(), 5);
    let (before, rest) =
        rendered.result.split_once("\\n\\n[Cut by mcpproxy: 5 of 9 characters are shown.").unwrap();
    assert_eq!(before, r#"{ "n":1e400,"content":[{"a":[ ],"te\u0078t":"0123\ud83d\ude00"#);
    let (note, after) = rest.split_once(r#"]","#).unwrap();
    assert_eq!(after, r#""type":"text","z":1.0},{"type":"image","data":"0123456789abcdef"} ],"y":"\/"}"#);
    for said in
        [r#"read_cache {\"key\": \"k0\", \"offset\": 5, \"limit\": 5}"#, r#"read_cache {\"key\": \"k1\"}"#]
    {
        assert!(note.contains(said), "{note}");
    }
    let meta: Value = serde_json::from_str(&rendered.meta).unwrap();
    let also = json!([{"key": "k1", "part": "structuredContent", "total_characters": 33, "shown": 0}]);
    let expected =
        json!({"key": "k0", "part": "content[0].text", "total_characters": 9, "shown": 5, "also": also});
    assert_eq!(meta, expected);
    let bodies: Vec<&str> = cut.bodies().collect();
    assert_eq!(bodies[0], r"0123\ud83d\ude006789");
    assert_eq!(serde_json::from_str::<String>(&format!("\"{}\"", bodies[1])).unwrap().len(), 33);
}

#[test]
fn records_are_counted_from_the_first_that_is_not_whole() {
    let records = json!([{"a": 1}, {"a": 2}, {"a": 3}]).to_string();
    let raw = json!({"content": [{"type": "text", "text": records}]}).to_string();
    let (result, meta) = render(&raw, 9).unwrap();
    assert_eq!(meta["records"], 3);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with(r#"[{"a":1},"#) && text.contains(r#""offset": 1, "limit": 50}"#), "{text}");
}

#[test]
fn so_many_blocks_are_cut_and_no_more() {
    let blocks = vec![json!({"type": "text", "text": "0123456789"}); PARTS_MAX + 1];
    let raw = json!({ "content": blocks }).to_string();
    let cut = Cut::find(&raw, 5).unwrap();
    assert_eq!(cut.bodies().count(), PARTS_MAX);
    let keys: Vec<String> = (0..PARTS_MAX).map(|n| n.to_string()).collect();
    let rendered = cut.render(&keys, 5);
    assert!(rendered.result.ends_with(r#"{"text":"0123456789","type":"text"}]}"#), "{}", rendered.result);
}

proptest! {
    /// Checks that the shown part and the part read later are together the whole text, character by character.
    #[test]
    fn nothing_is_lost(
        text in "(?s)[a-c\"\\\\/\\n\u{1}é😀]{0,80}",
        raw_escapes in proptest::collection::vec(prop::sample::select(vec!["\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\/", "x", "é"]), 0..20),
        limit in 1..40_usize,
        page in 1..50_usize,
    ) {
        let mut body = String::new();
        escape_body_into(&mut body, &text);
        body.push_str(&raw_escapes.concat());
        let raw = format!(r#"{{"content":[{{"type":"text","text":"{body}"}}]}}"#);
        let characters = json::literal_characters(&body);
        let Some(cut) = Cut::find(&raw, limit) else {
            prop_assert!(characters <= limit);
            return Ok(());
        };
        prop_assert!(characters > limit);
        let rendered = cut.render(&keys(), limit);
        let (shown, _) = rendered.result.split_once("\\n\\n[Cut by mcpproxy").unwrap();
        let mut seen = shown.strip_prefix(r#"{"content":[{"type":"text","text":""#).unwrap().to_owned();
        let mut next = Some(limit);
        while let Some(offset) = next {
            let request = PageRequest { within: Vec::new(), offset, limit: Some(page), characters_max: 30 };
            let read = page::read(&body, &request).unwrap();
            let Content::Text(text) = read.content else { panic!("not a text") };
            prop_assert!(json::literal_characters(&text) <= page.min(30));
            prop_assert_eq!(read.total, characters);
            seen.push_str(&text);
            next = read.next_offset;
        }
        prop_assert_eq!(seen, body);
    }
}
