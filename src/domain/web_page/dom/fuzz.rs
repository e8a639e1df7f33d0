use super::*;
use crate::domain::fuzz::{fuzz, shape};

const SEEDS: &[&str] = &[
    "<!doctype html><title>t</title><form id=f action=/a><input name=q><select name=s>\
     <option>1</select></form>",
    "<table><form><tr><td><input name=a></table><input name=b></form>",
    "<b>1<p>2</b>3<template><input></template><noscript><input name=n></noscript>",
    "<svg><foreignObject><form><input></svg><math><annotation-xml encoding=text/html><p></math>",
    "<a x=1 y='2' z=\"3\" w><textarea>\n</b c d</textarea><script>a<b</script><!-- <a b -->&amp;",
];
const WORDS: &[&str] = &[
    "<form>",
    "</form>",
    "<b>",
    "</b>",
    "<a>",
    "<table>",
    "<td>",
    "<div>",
    "</div>",
    "<select>",
    "<option>",
    "<p>",
    "<template>",
    "</template>",
    "<!--",
    "-->",
    "</",
    "<",
    "=",
    "'",
    "\"",
    "<![CDATA[",
    "<svg>",
    "<nobr>",
    "<button>",
];

/// Checks that links agree in both directions, and that each element is found once.
#[test]
fn pages() {
    fuzz(SEEDS, WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let dom = match WebDom::parse(&text) {
            Ok(dom) => dom,
            Err(fault) => return shape(fault.to_string()),
        };
        let nodes: Vec<_> = dom.descendants(dom.root()).collect();
        let mut children = 0;
        for node in [dom.root()].iter().chain(&nodes) {
            for child in dom.children(*node) {
                assert_eq!(dom.parent(child), Some(*node));
                children += 1;
            }
            assert_eq!(dom.ancestors(*node).last().unwrap_or(*node), dom.root());
            if let Some(form) = dom.parser_form(*node) {
                assert!(dom.is(form, "form"));
            }
        }
        assert_eq!(children, nodes.len());
        let names = nodes.iter().filter_map(|node| dom.name(*node));
        shape(names.take(40).collect::<Vec<_>>())
    });
}
