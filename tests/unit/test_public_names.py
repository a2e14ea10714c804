"""The names that users of the packages import."""

import importlib
import subprocess
import sys
import unittest

PUBLIC = {
    "gateway": [
        *("FakeClock", "FakeProvider", "Gateway", "GatewayError", "Ledger", "ProviderError", "RealClock"),
        *("hash_key", "route"),
    ],
    "llmkit.client": ["OpenAICompatClient", "approx_tokens", "messages_tokens"],
    "llmkit.embed": ["HashEmbedder"],
    "tracekit.trace": ["Tracer"],
}


class PublicNamesTest(unittest.TestCase):
    """What may be imported from where."""

    def test_every_promised_name_is_there(self) -> None:
        """Under the module that was promised, and listed where the module has a list."""
        for module_name, names in PUBLIC.items():
            module = importlib.import_module(module_name)
            for name in names:
                with self.subTest(f"{module_name}.{name}"):
                    self.assertTrue(callable(getattr(module, name)))
                    self.assertIn(name, getattr(module, "__all__", names))

    def test_the_gateway_lists_nothing_else(self) -> None:
        """Everything beside these names is internal."""
        self.assertEqual(sorted(importlib.import_module("gateway").__all__), sorted(PUBLIC["gateway"]))

    def test_the_simplest_uses_work(self) -> None:
        """Without any arguments but the obvious ones."""
        from gateway import FakeClock, FakeProvider, hash_key, route
        from llmkit.client import approx_tokens, messages_tokens
        from llmkit.embed import HashEmbedder
        from tracekit.trace import Tracer

        self.assertEqual(len(hash_key("sk-gw-a-b")), 64)
        self.assertEqual(route({"messages": [{"role": "user", "content": "hi"}]}), "cheap")
        self.assertEqual(FakeProvider([{"text": "hello"}]).name, "fake")
        self.assertEqual(approx_tokens(""), 0)
        self.assertGreater(messages_tokens([{"role": "user", "content": "hi"}]), 0)
        self.assertEqual(len(HashEmbedder().embed(["hi"])[0]), HashEmbedder().dim)
        with Tracer().start("work") as span:
            span.set("a", 1)
        clock = FakeClock()
        clock.advance(2)
        self.assertEqual(clock.now_s(), 2)

    def test_a_start_makes_no_dataclass(self) -> None:
        """Fifty of them would take as long to make as fifty modules to load."""
        program = "import sys, gateway.api, gateway.cli; sys.exit('dataclasses' in sys.modules)"
        self.assertEqual(self.status_of(program), 0)

    def test_a_start_loads_no_tables_of_other_scripts(self) -> None:
        """A host whose name is ASCII needs none; they would take some milliseconds."""
        start = "serve_main(['--check', '--host', 'localhost', '--data-dir', 'nowhere'])"
        program = f"import sys; from gateway.cli import serve_main; {start}; sys.exit('encodings.idna' in sys.modules)"
        self.assertEqual(self.status_of(program), 0)

    def test_the_kits_do_not_load_the_gateway(self) -> None:
        """They are used without it."""
        program = "import sys, llmkit.client, llmkit.embed, tracekit.trace; sys.exit('gateway' in sys.modules)"
        self.assertEqual(self.status_of(program), 0)

    def status_of(self, program: str) -> int:
        """The exit status of a Python process of its own."""
        paths = ":".join(path for path in sys.path if path)
        return subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": paths},
            check=False,
            timeout=60,
            stdout=subprocess.DEVNULL,
        ).returncode
