use std::time::{Duration, Instant};

use super::*;

fn parse(text: &str) -> WebDom {
    WebDom::parse(text).expect("a page")
}

/// Returns the elements below a node as nested names.
fn shape(dom: &WebDom, node: DomNodeId) -> String {
    let inner: Vec<String> = dom
        .children(node)
        .filter_map(|child| match dom.own_text(child) {
            Some(text) => (!text.trim().is_empty()).then(|| format!("'{}'", text.trim())),
            None => dom.name(child).map(|name| format!("{name}{}", shape(dom, child))),
        })
        .collect();
    if inner.is_empty() { String::new() } else { format!("({})", inner.join(" ")) }
}

#[test]
fn broken_markup_becomes_the_tree_of_browsers() {
    for (text, tree) in [
        ("<p>a<p>b", "html(head body(p('a') p('b')))"),
        ("<table><tr><td>x</table>", "html(head body(table(tbody(tr(td('x'))))))"),
        ("<table>a<p>b<tr><td>c", "html(head body('a' p('b') table(tbody(tr(td('c'))))))"),
        ("<b>1<p>2</b>3</p>", "html(head body(b('1') p(b('2') '3')))"),
        ("<a>1<div>2<a>3</div>", "html(head body(a('1') div(a('2') a('3'))))"),
        ("<noscript><p>x</noscript>", "html(head(noscript) body(p('x')))"),
        ("<body><noscript><p>x</noscript>", "html(head body(noscript(p('x'))))"),
        ("<template><p>x</template><p>y", "html(head(template) body(p('y')))"),
        ("<svg><title>x</title></svg>", "html(head body)"),
    ] {
        let dom = parse(text);
        assert_eq!(shape(&dom, dom.root()), format!("({tree})"), "{text}");
    }
}

#[test]
fn nodes_are_found_by_their_links() {
    let dom = parse("<ul id=a class='x y'><li id=b>1<li id=b title=t>2<b>3</b>4</ul><p id=''>5");
    let [list, item] = ["a", "b"].map(|id| dom.by_id(id).expect(id));
    assert_eq!(dom.text(list), "1234");
    assert_eq!(dom.text(item), "1", "the first of two with one id");
    assert_eq!(dom.by_id(""), None);
    assert_eq!(dom.parent(item), Some(list));
    assert_eq!(dom.children(list).count(), 2);
    let names: Vec<_> = dom.ancestors(item).filter_map(|node| dom.name(node)).collect();
    assert_eq!(names, ["ul", "body", "html"]);
    let mut below = dom.descendants(list);
    assert_eq!(below.next(), Some(item));
    below.skip_inside();
    let second = below.next().expect("the second");
    assert_eq!(dom.attribute(second, "title"), Some("t"));
    assert_eq!(below.count(), 4, "what is inside of it, and nothing behind the list");
    assert!(dom.has(list, "class") && !dom.has(list, "title") && dom.is(list, "ul"));
    assert_eq!(dom.attributes(list).collect::<Vec<_>>(), [("id", "a"), ("class", "x y")]);
}

#[test]
fn selectors_match() {
    let dom = parse(
        "<main><form id=one class='a b'><p><input name=q></p></form>\
         <form data-x='1 2'><div><p><input name=r id=é></p></div></form></main>",
    );
    for (selector, found) in [
        ("#one", "one"),
        ("form", "one"),
        ("FORM.a.b#one", "one"),
        ("[data-x='1 2'] input", "r"),
        ("[ data-x = \"1 2\" ] > div > p > [name=r]", "r"),
        ("main form > p input", "q"),
        ("main > input, div input", "r"),
        ("#é", "r"),
        ("main div > p > *", "r"),
        ("body p > input[name]", "q"),
        ("p > form, div > input", ""),
        (".c", ""),
        ("form form", ""),
    ] {
        let selector = DomSelector::parse(selector).unwrap_or_else(|fault| panic!("{selector}: {fault}"));
        let name = |node| dom.attribute(node, "name").or(dom.attribute(node, "id"));
        assert_eq!(dom.find(&selector).and_then(name).unwrap_or_default(), found, "{selector:?}");
    }
    let many = "a ".repeat(17);
    let long = "a".repeat(600);
    for text in [
        "", " ", "#", "a:hover", "a + b", "a ~ b", "a >", ", a", "a, ", "#1", "[a", "[a='b]", "[a^=b]",
        "a\\:b", &many, &long,
    ] {
        assert!(DomSelector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_selector_costs_little_wherever_it_matches_almost() {
    let dom = parse(&"<div>".repeat(500));
    let selector = DomSelector::parse("p > div div > div div > div div > div div > div div > div").unwrap();
    let began = Instant::now();
    assert_eq!(dom.find(&selector), None);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn a_bound_stops_the_page_that_exceeds_it() {
    let tag = |count| format!("<p {}>", (0..count).map(|at| format!("a{at} ")).collect::<String>());
    let repeated = |part: &str, count| part.repeat(count);
    for (page, fault) in [
        (repeated("<div>", DEPTH_MAX + 1), DomFault::Depth),
        (repeated("<b>", DEPTH_MAX), DomFault::Depth),
        (repeated("<table><tr><td>", 200), DomFault::Depth),
        (repeated("<!---->", NODES_MAX + 1), DomFault::Nodes),
        (repeated("<br>", NODES_MAX), DomFault::Nodes),
        (repeated(&tag(200), 501), DomFault::Attributes),
        (tag(TAG_ATTRIBUTES_MAX + 1), DomFault::TagAttributes),
        (format!("&am{}", tag(TAG_ATTRIBUTES_MAX + 1)), DomFault::TagAttributes),
        (format!("</>{}", tag(TAG_ATTRIBUTES_MAX + 1)), DomFault::TagAttributes),
        (format!("<{}", tag(TAG_ATTRIBUTES_MAX + 1)), DomFault::TagAttributes),
        (
            format!("<p title='{}é'>{}", "é".repeat(4200), tag(TAG_ATTRIBUTES_MAX + 1)),
            DomFault::TagAttributes,
        ),
        (format!("<!-- <a -->{}", tag(TAG_ATTRIBUTES_MAX + 1)), DomFault::TagAttributes),
        (repeated("<input>", CONTROLS_MAX + 1), DomFault::Controls),
        (format!("{}{}", repeated("<div>", 500), repeated("<p></p>", 20_000)), DomFault::Steps),
    ] {
        let began = Instant::now();
        assert_eq!(WebDom::parse(&page).map(|dom| dom.ids.len()), Err(fault), "{:?}", page.get(..20));
        // a build with optimisation takes a tenth
        assert!(began.elapsed() < Duration::from_secs(3), "{fault}: {:?}", began.elapsed());
    }
}

#[test]
fn what_is_within_the_bounds_is_parsed() {
    let words = "word ".repeat(2000);
    for page in [
        "<input>".repeat(CONTROLS_MAX),
        "<br>".repeat(NODES_MAX / 2),
        "<div>".repeat(DEPTH_MAX - 10),
        // words are no attributes
        format!("<!-- <a {words} --><p title='{words}'>{words}<script>if (a<b) {{ {words} }}</script>"),
        format!("<textarea></b {words}</textarea><style><a {words}</style><!doctype {words}><p>"),
        "<p><b>1</b><a href=x>2</a></p>".repeat(5000),
    ] {
        WebDom::parse(&page).unwrap_or_else(|fault| panic!("{fault}: {:?}", page.get(..40)));
    }
}
