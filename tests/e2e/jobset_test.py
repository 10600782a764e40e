"""The emitted JobSet against the API's own models, as PyPI's kubeflow-trainer-api 2.3.0 has them: every field is one that the API knows, with its type."""
import json
import subprocess
import typing

from place_test import cluster
from support import DEADLINE, EndToEnd, PROGRAM

try:
    import yaml
    import kubeflow_trainer_api.models as models
except ImportError:
    models = None


class Jobset(EndToEnd):
    def unknown_fields(self, model, value, path):
        """Paths that are in `value` and not in the model, which itself ignores what it doesn't know."""
        names = {field.alias or name: field for name, field in model.model_fields.items()}
        found = [f"{path}.{key}" for key in value if key not in names]
        for key, inner in value.items():
            if key not in names:
                continue
            for part in self.models_in(names[key].annotation):
                for i, each in enumerate(inner if isinstance(inner, list) else [inner]):
                    if isinstance(each, dict):
                        found += self.unknown_fields(part, each, f"{path}.{key}[{i}]")
        return found

    def models_in(self, annotation):
        if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
            return [annotation]
        if typing.get_origin(annotation) is dict:
            return []  # free keys
        return [model for part in typing.get_args(annotation) for model in self.models_in(part)]

    def emit(self, leaves):
        description = self.folder / "cluster.json"
        devices, links = cluster([(f"n{i}", leaf) for i, leaf in enumerate(leaves)], 4)
        description.write_text(json.dumps({"format": "wirewise JSON", "devices": devices, "pairs": [], "links": links, "facts": [], "notes": [], "partial": False}))
        words = [PROGRAM, "place", "--from", str(description), "--mesh", f"dp={len(leaves)},tp=4", "--traffic", "tp=100G", "--emit", "jobset"]
        return yaml.safe_load(subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout)

    def test_every_field_is_known_to_the_api(self):
        if models is None:
            self.skipTest("needs kubeflow-trainer-api==2.3.0 and PyYAML (pip)")
        for leaves in ([0], [0, 0], [0, 0, 1, 1], [0, 1, 1]):
            document = self.emit(leaves)
            models.JobsetV1alpha2JobSet.from_dict(document)
            self.assertEqual(self.unknown_fields(models.JobsetV1alpha2JobSet, document, "jobset"), [])
            pod = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
            for name in pod["metadata"]["annotations"]:
                self.assertRegex(name, r"^kueue\.x-k8s\.io/podset-(required-topology|preferred-topology|slice-required-topology|slice-size)$")
            self.assertTrue(all(isinstance(value, str) for value in pod["metadata"]["annotations"].values()))
        broken = self.emit([0])
        broken["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 1
        self.assertEqual(len(self.unknown_fields(models.JobsetV1alpha2JobSet, broken, "jobset")), 1)
