"""A small shop on Flask: a search, and a basket in a session whose form has a token."""

import secrets

from flask import Flask, abort, flash, get_flashed_messages, redirect, render_template_string, request, session

from serve import serve

GOODS = {"tent": 120, "boots": 80, "boot laces": 4}
PAGE = """<!doctype html><title>{{ title }}</title>
{% for message in get_flashed_messages() %}<p class="alert alert-success" role="alert">{{ message }}</p>{% endfor %}
<ul>{% for name, price in goods.items() %}<li>{{ name }}: {{ price }}</li>{% endfor %}</ul>
<form role="search" action="/"><label>Words <input type="search" name="q" value="{{ q }}"></label><button>Search</button></form>
<form id="wishes" method="post" action="/wishes"><input type="hidden" name="csrf_token" value="{{ token }}">
<label>Article <select name="article">{% for name in all %}<option>{{ name }}</option>{% endfor %}</select></label>
<label>Number <input type="number" name="number" min="1" max="9" value="1"></label><button>Remember</button></form>"""

app = Flask(__name__)
app.secret_key = "a test has no secrets"


@app.get("/")
def shop():
    q = request.args.get("q", "")
    session.setdefault("token", secrets.token_hex(16))
    goods = {name: price for name, price in GOODS.items() if q in name}
    return render_template_string(PAGE, title="Shop", goods=goods, all=GOODS, q=q, token=session["token"])


@app.post("/wishes")
def wishes():
    if request.form["csrf_token"] != session.get("token"):
        abort(400)
    flash(f"Successfully added {request.form['number']} of {request.form['article']}")
    return redirect("/")


if __name__ == "__main__":
    serve(app)
