"""A site on Django: its admin's login, and a list with a search and a form, as Django renders them.

The user is `ann`, with the password `correct horse`.
"""

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="a test has no secrets",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
    ],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
)
django.setup()

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.shortcuts import redirect
from django.template import engines
from django.urls import path

from serve import serve

NOTES = ["Boots, size 44", "A tent for two"]
PAGE = """<!doctype html><title>{{ title }}</title>{% if message %}<p role="status">{{ message }}</p>{% endif %}
<ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>
<form method="{{ method }}">{% if method == "post" %}{% csrf_token %}{% endif %}{{ form }}<button>{{ verb }}</button></form>"""


class Search(forms.Form):
    q = forms.CharField(label="Words", max_length=40)


class Note(forms.Form):
    color = forms.CharField(label="Color of the list", max_length=40)
    size = forms.TypedChoiceField(choices=[("s", "Small"), ("l", "Large")], coerce=str)

    def clean_color(self):
        if self.cleaned_data["color"] == "plaid":
            raise forms.ValidationError("Plaid is no color.")
        return self.cleaned_data["color"]


def page(request, **context):
    template = engines["django"].from_string(PAGE)
    return HttpResponse(template.render(context, request))


def search(request):
    form = Search(request.GET or None)
    found = [note for note in NOTES if form.is_valid() and form.cleaned_data["q"].lower() in note.lower()]
    return page(request, title="Search", notes=found, form=form, method="get", verb="Search")


def theme(request):
    form = Note(request.POST or None)
    if request.method == "POST" and form.is_valid():
        request.session["done"] = f"Your changes were saved: {form.cleaned_data['color']}"
        return redirect("/theme/done")
    return page(request, title="Theme", form=form, method="post", verb="Apply")


def done(request):
    return HttpResponse(f"<!doctype html><title>Theme</title><p role=status>{request.session.pop('done')}</p>")


urlpatterns = [
    path("admin/", admin.site.urls),
    path("search", search),
    path("theme", theme),
    path("theme/done", done),
]

if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser("ann", password="correct horse")
    serve(get_wsgi_application())
